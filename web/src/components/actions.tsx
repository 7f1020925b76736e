/** What the viewer may do to a job. Each asks before it acts, and says what the server answered. */

import { useState } from "preact/hooks";
import type { Allowed, JobRow } from "../api";
import { jobPath } from "../api";
import { post, sentence } from "../http";
import { t } from "../i18n";
import { Dialog, Failure, Field } from "./ui";
import { Icon } from "./icons";

type Action = "suspend" | "resume" | "restart" | "scale" | "delete";
const ACTIONS: { name: Action; icon: string }[] = [
  { name: "suspend", icon: "Suspended" },
  { name: "resume", icon: "Running" },
  { name: "restart", icon: "Restarting" },
  { name: "scale", icon: "scale" },
  { name: "delete", icon: "trash" },
];

export function Actions({ id, row, allowed }: { id: string; row: JobRow; allowed: Allowed }) {
  const [open, setOpen] = useState<Action | null>(null);
  const [done, setDone] = useState<string | null>(null);
  const shown = ACTIONS.filter(({ name }) => allowed[name]);
  return (
    <div class="actions" role="group" aria-label={t("actions")}>
      {shown.map(({ name, icon }) => (
        <button key={name} type="button" class={name === "delete" ? "button danger" : "button"} onClick={() => setOpen(name)}>
          <Icon name={icon} size={14} />
          {t(`action.${name}`)}
        </button>
      ))}
      <span class="action-done" role="status">
        {done}
      </span>
      {open && (
        <Confirm
          action={open}
          id={id}
          row={row}
          close={(text) => {
            setOpen(null);
            if (text) setDone(text);
          }}
        />
      )}
    </div>
  );
}

function Confirm({ action, id, row, close }: { action: Action; id: string; row: JobRow; close: (done?: string) => void }) {
  const [replicas, setReplicas] = useState(String(row.replicas));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const run = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      // The uid: what the viewer looked at, not another job of that name.
      const answer = await post<{ text?: string }>(`${jobPath(id)}/actions/${action}`, { uid: row.uid, ...(action === "scale" ? { replicas: Number(replicas) } : {}) });
      close(answer.text ?? t("action.done", { action: t(`action.${action}`), name: row.name }));
    } catch (problem) {
      setError(sentence(problem));
      setBusy(false);
    }
  };
  return (
    <Dialog title={t(`confirm.${action}`, { name: row.name })} close={() => close()}>
      <form onSubmit={(event) => void run(event)}>
        <p>{t(`explain.${action}`, { kind: row.kind, namespace: row.namespace, name: row.name, n: row.replicas })}</p>
        {action === "scale" && (
          <Field label={t("action.replicas")}>
            <input class="input" type="number" min={0} max={100000} required value={replicas} onInput={(event) => setReplicas(event.currentTarget.value)} />
          </Field>
        )}
        <Failure message={error} />
        <div class="dialog-foot">
          <button type="button" class="button" onClick={() => close()}>
            {t("cancel")}
          </button>
          <button type="submit" class={action === "delete" ? "button danger solid" : "button primary"} disabled={busy}>
            {t(`action.${action}`)}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
