/** A field for YAML: typed, pasted, dropped or read from a file. */

import { useRef, useState } from "preact/hooks";
import { t } from "../i18n";

interface Properties {
  id: string;
  label: string;
  value: string;
  change: (yaml: string) => void;
  rows: number;
}

export function YamlInput({ id, label, value, change, rows }: Properties) {
  const [over, setOver] = useState(false);
  const file = useRef<HTMLInputElement>(null);
  const read = async (files: FileList | null | undefined): Promise<void> => {
    const first = files?.[0];
    if (first) change(await first.text());
  };
  return (
    <div
      class="yaml-input"
      data-over={over ? "yes" : "no"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void read(event.dataTransfer?.files);
      }}
    >
      <div class="yaml-head">
        <label for={id}>{label}</label>
        <button type="button" class="link" onClick={() => file.current?.click()}>
          {t("yaml.file")}
        </button>
        <input ref={file} type="file" accept=".yaml,.yml,.json,text/*" class="visually-hidden" tabIndex={-1} aria-label={t("yaml.file")} onChange={(event) => void read(event.currentTarget.files)} />
      </div>
      <textarea id={id} class="input code-field" rows={rows} spellcheck={false} autocomplete="off" autocapitalize="off" value={value} placeholder={"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n…"} onInput={(event) => change(event.currentTarget.value)} />
    </div>
  );
}

/** Puts the cursor on a line of a field, and the line into sight. */
export function showLine(id: string, line: number): void {
  const field = document.getElementById(id);
  if (!(field instanceof HTMLTextAreaElement)) return;
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  field.scrollTop = (line - 3) * parseFloat(getComputedStyle(field).lineHeight);
}
