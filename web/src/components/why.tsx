/** The answer to "why": cause, evidence with links, next steps. */

import { useEffect, useState } from "preact/hooks";
import type { WhyCause, WhyReport } from "../api";
import { jobPath } from "../api";
import { useFetched } from "../hooks";
import { t } from "../i18n";
import { CopyButton, Failure } from "./ui";
import { Icon } from "./icons";

interface Properties {
  id: string;
  uid: string | null;
  at: string | null;
  /** What the report depends on: when it changes, the report is asked for again. */
  state: string;
  showLog: (replica: string, line: string) => void;
  showPods: () => void;
}

export function Why({ id, uid, at, state, showLog, showPods }: Properties) {
  const why = useFetched<WhyReport>(`${jobPath(id)}/why`, { uid, at });
  const [asked, setAsked] = useState(state);
  useEffect(() => {
    if (state === asked) return undefined;
    // A team that restarts changes often; the report follows once it is calm.
    const timer = window.setTimeout(() => {
      setAsked(state);
      why.reload();
    }, 1500);
    return () => window.clearTimeout(timer);
  }, [state, asked]);

  const report = why.data;
  if (!report) return <Failure message={why.error} retry={why.reload} />;
  return (
    <details class="why" data-healthy={report.healthy ? "yes" : "no"} open={!report.healthy}>
      <summary>
        <Icon name={report.healthy ? "Succeeded" : "warning"} />
        <span class="why-headline">{report.headline}</span>
      </summary>
      <div class="why-body">
        <CauseParts cause={report} showLog={showLog} showPods={showPods} />
        {(report.others ?? []).map((other, index) => (
          <CauseParts key={index} cause={other} showLog={showLog} showPods={showPods} />
        ))}
        {[...(report.notes ?? []), ...(report.unread ?? [])].map((note) => (
          <p key={note} class="why-note faint">
            {note}
          </p>
        ))}
      </div>
    </details>
  );
}

interface PartsProperties {
  cause: WhyCause;
  showLog: (replica: string, line: string) => void;
  showPods: () => void;
}

function CauseParts({ cause: report, showLog, showPods }: PartsProperties) {
  return (
    <>
      {report.cause && (
        <>
          <h2>{t("why.cause")}</h2>
          <p>{report.cause}</p>
        </>
      )}
      {report.evidence.length > 0 && (
        <>
          <h2>{t("why.evidence")}</h2>
          <ul>
            {report.evidence.map((item, index) => (
              <li key={index} class="evidence">
                <span class="evidence-text">{item.text}</span>
                {item.link?.kind === "log" && (
                  <button type="button" class="link" onClick={() => showLog(item.link?.pod ?? "", typeof item.link?.line === "string" ? item.link.line : "")}>
                    {t("why.showLog")}
                  </button>
                )}
                {item.link?.kind === "object" && (
                  <button type="button" class="link" onClick={showPods}>
                    {t("why.showObject", { name: item.link.pod ?? item.link.path ?? "" })}
                  </button>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
      {report.next.length > 0 && (
        <>
          <h2>{t("why.next")}</h2>
          <ul class="plain">
            {report.next.map((step, index) => (
              <li key={index} class="next-step">
                <span>{step.text}</span>
                {step.command && (
                  <span class="command">
                    <code>{step.command}</code>
                    <CopyButton text={step.command} />
                  </span>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
