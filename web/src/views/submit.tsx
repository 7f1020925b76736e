/** A YAML is checked by the server first; only what passed the check can be submitted. */

import { useState } from "preact/hooks";
import type { SubmitAnswer } from "../api";
import { Failure, Notice } from "../components/ui";
import { YamlInput, showLine } from "../components/yaml_input";
import { post, sentence } from "../http";
import { t } from "../i18n";
import { address } from "../model/route";

export function Submit() {
  const [yaml, setYaml] = useState("");
  const [checked, setChecked] = useState<{ yaml: string; answer: SubmitAnswer } | null>(null);
  const [created, setCreated] = useState<SubmitAnswer | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  const send = async (dryRun: boolean): Promise<void> => {
    setBusy(true);
    setError(null);
    setCreated(null);
    try {
      const answer = await post<SubmitAnswer>("api/submit", { yaml, dryRun });
      if (dryRun || answer.problems.length) setChecked({ yaml, answer });
      else {
        setCreated(answer);
        setChecked(null);
      }
    } catch (problem) {
      setError(sentence(problem));
    } finally {
      setBusy(false);
    }
  };
  const current = checked !== null && checked.yaml === yaml ? checked.answer : null;
  const passed = current !== null && current.problems.length === 0;
  return (
    <div class="view narrow">
      <header class="view-head">
        <h1>{t("submit.title")}</h1>
      </header>
      <p class="lead">{t("submit.lead")}</p>
      <form
        class="submit"
        onSubmit={(event) => {
          event.preventDefault();
          void send(!passed);
        }}
      >
        <YamlInput id="submit-yaml" label={t("submit.yaml")} value={yaml} change={setYaml} rows={20} />
        <div class="toolbar">
          <button type={passed ? "button" : "submit"} class={passed ? "button" : "button primary"} disabled={busy || !yaml.trim()} onClick={passed ? () => void send(true) : undefined}>
            {t("submit.check")}
          </button>
          <button type={passed ? "submit" : "button"} class={passed ? "button primary" : "button"} disabled={busy || !passed} aria-describedby="submit-hint">
            {t("submit.submit")}
          </button>
          <span id="submit-hint" class="faint">
            {passed ? t("submit.ready") : t("submit.hint")}
          </span>
        </div>
      </form>
      <Failure message={error} />
      {current && current.problems.length > 0 && (
        <Notice tone="error" live>
          <p class="notice-title">{t("submit.problems", { n: current.problems.length })}</p>
          <ul class="plain">
            {current.problems.map((problem, index) => (
              <li key={index}>
                {problem.line ? (
                  <button type="button" class="link" onClick={() => showLine("submit-yaml", problem.line ?? 1)}>
                    {t("submit.line", { n: problem.line })}
                  </button>
                ) : null}{" "}
                {problem.text}
              </li>
            ))}
          </ul>
        </Notice>
      )}
      {passed && current && (
        <Notice tone="good" live>
          <p class="notice-title">{t("submit.passed")}</p>
          <Objects answer={current} />
        </Notice>
      )}
      {created && (
        <Notice tone="good" live>
          <p class="notice-title">{t("submit.created")}</p>
          <Objects answer={created} />
          <a class="button" href={address([])}>
            {t("nav.board")}
          </a>
        </Notice>
      )}
    </div>
  );
}

function Objects({ answer }: { answer: SubmitAnswer }) {
  return (
    <ul class="plain">
      {answer.objects.map((object) => (
        <li key={`${object.kind}/${object.namespace ?? ""}/${object.name}`}>
          {object.kind} <strong>{object.namespace ? `${object.namespace}/${object.name}` : object.name}</strong> <span class="faint">{object.result}</span>
        </li>
      ))}
    </ul>
  );
}
