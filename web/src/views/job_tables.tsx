/** Events, pods, conditions and YAML of a job. */

import type { Condition, EventRow, JobDetail, PodRow } from "../api";
import { jobPath } from "../api";
import { CopyButton, Empty } from "../components/ui";
import { useFetched } from "../hooks";
import { t, word } from "../i18n";
import { numberText } from "../model/numbers";
import { type Range, clockText, durationText, inRange, moment } from "../model/time";

export function Events({ events, brush, now }: { events: EventRow[]; brush: Range | null; now: number }) {
  const shown = events.filter((event) => inRange(moment(event.at), brush)).reverse();
  if (!shown.length) return <Empty title={brush ? t("events.noneInSpan") : t("events.none")} />;
  return (
    <>
      {brush && <p class="faint">{t("events.inSpan", { n: shown.length, total: events.length })}</p>}
      <ul class="event-list">
        {shown.map((event, index) => (
          <li key={index} class="event" data-type={event.type}>
            <time class="mono faint">{clockText(moment(event.at), now)}</time>
            <span class="event-type">{event.type === "Warning" ? "▲" : "·"}<span class="visually-hidden">{event.type}</span></span>
            <span class="event-body">
              <strong>{event.reason}</strong> {event.message}
              <span class="sub">
                {event.object}
                {event.count && event.count > 1 ? ` · ${t("events.times", { n: event.count })}` : ""}
              </span>
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

export function Pods({ pods, now }: { pods: PodRow[]; now: number }) {
  if (!pods.length) return <Empty title={t("pods.none")} />;
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label={t("tab.pods")}>
      <table class="table">
        <thead>
          <tr>
            {(["replica", "state", "ready", "restarts", "exit", "progress", "node", "age", "reason"] as const).map((column) => (
              <th key={column} scope="col">
                {t(`column.${column}`)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {pods.map((pod) => {
            const born = moment(pod.createdAt ?? pod.startedAt ?? null);
            return (
              <tr key={pod.name}>
                <th scope="row" title={pod.name}>
                  {pod.replica || pod.name}
                </th>
                <td>{pod.state}</td>
                <td>{pod.ready ? t("yes") : t("no")}</td>
                <td class="mono">{pod.restarts}</td>
                <td class="mono">{pod.exit}</td>
                <td class="mono">{pod.progress?.step != null ? `${numberText(pod.progress.step)}${pod.progress.total ? `/${numberText(pod.progress.total)}` : ""}` : ""}</td>
                <td>{pod.node}</td>
                <td class="mono">{born === null ? "" : durationText(now - born)}</td>
                <td>{pod.reason}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

export function Conditions({ conditions, now }: { conditions: Condition[]; now: number }) {
  if (!conditions.length) return <Empty title={t("conditions.none")} />;
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label={t("tab.conditions")}>
      <table class="table">
        <thead>
          <tr>
            {(["type", "status", "since", "reason", "message"] as const).map((column) => (
              <th key={column} scope="col">
                {t(`column.${column}`)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {conditions.map((condition, index) => (
            <tr key={index} class={condition.status === "True" ? "" : "faint"}>
              <th scope="row">{word("state", condition.type)}</th>
              <td>{condition.status}</td>
              <td class="mono">{clockText(moment(condition.at ?? null), now)}</td>
              <td>{condition.reason}</td>
              <td>{condition.message}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The YAML as it is now: patches of the page do not carry it. */
export function Yaml({ id, uid, at, first }: { id: string; uid: string | null; at: string | null; first: string }) {
  const detail = useFetched<JobDetail>(jobPath(id), { uid, at });
  const yaml = detail.data?.yaml ?? first;
  return (
    <div class="code-box">
      <div class="code-tools">
        <CopyButton text={yaml} />
      </div>
      <pre class="code" tabIndex={0} aria-label="YAML">
        {yaml.replace(/\n$/, "").split("\n").map((line, index) => (
          <span key={index} class="code-line">
            {line || " "}
            {"\n"}
          </span>
        ))}
      </pre>
    </div>
  );
}
