/** One job: its team timeline, and below it logs, curves, events, pods, conditions and YAML of the same span of time. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { JobDetail, TeamTimeline } from "../api";
import { jobPath } from "../api";
import { Icon } from "../components/icons";
import { Actions } from "../components/actions";
import { Why } from "../components/why";
import { Failure, GoodputBar, Loading, Notice, ProgressBar, Refusals, StateBadge, type Tab, TabPanel, Tabs, ageText, metricsOf, runTimeText } from "../components/ui";
import { MarkList, Timeline, TimelineTable } from "../components/timeline";
import { useViewer } from "../context";
import { go, useFetched, useFollowed, useMedia, useNow } from "../hooks";
import { withQuery } from "../http";
import { t } from "../i18n";
import { numberText } from "../model/numbers";
import { address } from "../model/route";
import { type Range, clockText, durationText, moment, rangeOf } from "../model/time";
import { around, isLive, nextMark, wholeRange } from "../model/timeline";
import { useShortcuts } from "../shortcuts";
import { Curves } from "./curves";
import { Conditions, Events, Pods, Yaml } from "./job_tables";
import { Logs } from "./logs";

type TabId = "logs" | "curves" | "events" | "pods" | "conditions" | "yaml";
const TABS: TabId[] = ["logs", "curves", "events", "pods", "conditions", "yaml"];

const NO_TIMELINE: TeamTimeline = { start: 0, end: null, rows: [], marks: [], links: [], phases: [] };

export function Job({ id, query }: { id: string; query: URLSearchParams }) {
  const { at, report, session } = useViewer();
  const uid = query.get("uid");
  const past = at !== null || uid !== null ? withQuery(jobPath(id), { uid, at }) : null;
  const job = useFollowed<JobDetail, Partial<JobDetail>>(
    withQuery("api/stream", { view: "job", id }),
    past,
    (detail, patch) => ({ ...detail, ...Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== null && value !== undefined)) }),
    (snapshot) => snapshot as JobDetail,
  );
  useEffect(() => report(job.connection), [job.connection]);

  // A job that is gone is not followed; the record may still have it.
  const gone = useFetched<JobDetail>(job.data === null && job.error !== null && past === null && session.history ? jobPath(id) : null);
  const detail = job.data ?? gone.data;
  const timeline = detail?.timeline ?? NO_TIMELINE;
  const live = detail !== null && past === null && (isLive(timeline) || detail.row.endedAt == null);
  const now = useNow(live ? 1000 : null);
  const whole = useMemo(() => wholeRange(timeline, now), [timeline, now]);
  const brush = rangeOf(query.get("from"), query.get("to"));
  const wide = useMedia("(min-width: 1500px)");

  const set = (change: Record<string, string | null>): void => {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(change)) {
      if (value === null) next.delete(name);
      else next.set(name, value);
    }
    go(address(["job", ...id.split("/")], next), true);
  };
  const setBrush = (range: Range | null): void => {
    set({ from: range && new Date(range.from).toISOString(), to: range && new Date(range.to).toISOString() });
  };
  const wanted = query.get("tab") as TabId | null;
  const tab: TabId = wanted && TABS.includes(wanted) ? wanted : "logs";
  const setTab = (next: string): void => set({ tab: next === "logs" ? null : next });
  const [markIndex, setMarkIndex] = useState<number | null>(null);
  const step = (by: 1 | -1): void => {
    const from = markIndex === null ? null : (moment(timeline.marks[markIndex]?.at) ?? null);
    const next = nextMark(timeline.marks, from, by);
    if (next === -1) return;
    setMarkIndex(next);
    setBrush(around(moment(timeline.marks[next]?.at) ?? whole.from, whole));
  };
  useShortcuts([
    ...TABS.map((name, index) => ({ keys: String(index + 1), label: `tab.${name}` as const, run: () => setTab(name) })),
    { keys: "]", label: "keys.nextMark", run: () => step(1) },
    { keys: "[", label: "keys.previousMark", run: () => step(-1) },
    { keys: "/", label: "keys.search", run: () => document.querySelector<HTMLInputElement>("#log-search")?.focus() },
    { keys: "u", label: "keys.up", run: () => go(address([])) },
    { keys: "Escape", label: "keys.clearBrush", run: () => setBrush(null) },
  ]);

  if (!detail) {
    return (
      <div class="view">
        <BackLink />
        <h1>{id.split("/").at(-1)}</h1>
        {!gone.loading && <Failure message={job.error} />}
        {(job.error === null || gone.loading) && <Loading />}
      </div>
    );
  }

  const tabs: Record<TabId, Tab> = {
    logs: { id: "logs", label: t("tab.logs") },
    curves: { id: "curves", label: t("tab.curves") },
    events: { id: "events", label: t("tab.events"), count: detail.events.length },
    pods: { id: "pods", label: t("tab.pods"), count: detail.pods.length },
    conditions: { id: "conditions", label: t("tab.conditions"), count: detail.conditions.length },
    yaml: { id: "yaml", label: "YAML" },
  };
  const panel = (name: TabId) => {
    if (name === "logs") return <Logs id={id} uid={uid} at={at} brush={brush} live={live} replicas={timeline.rows.map((row) => row.name)} query={query} set={set} now={now} restarts={detail.row.restarts} />;
    if (name === "curves") return <Curves jobs={[{ id, uid }, ...withJobs(query).map((other) => ({ id: other, uid: null }))]} at={at} brush={brush} setBrush={setBrush} live={live} query={query} set={set} />;
    if (name === "events") return <Events events={detail.events} brush={brush} now={now} />;
    if (name === "pods") return <Pods pods={detail.pods} now={now} />;
    if (name === "conditions") return <Conditions conditions={detail.conditions} now={now} />;
    return <Yaml id={id} uid={uid} at={at} first={detail.yaml} />;
  };
  const rest = TABS.filter((name) => name !== "logs");
  const right: TabId = tab === "logs" ? "curves" : tab;

  return (
    <div class="view">
      <BackLink />
      <JobHead detail={detail} id={id} now={now} readOnly={past !== null || Boolean(detail.deleted)} />
      <Refusals refused={detail.refused} />
      {gone.data === null && <Failure message={job.error} />}
      {(detail.deleted || detail.row.deleted) && <Notice tone="info">{t("job.deletedNotice")}</Notice>}
      <Why id={id} uid={uid} at={at} state={`${detail.row.state}/${detail.row.restarts}/${detail.row.reason ?? ""}`} showLog={(pod, line) => set({ tab: null, replica: pod, search: line })} showPods={() => setTab("pods")} />
      <section class="panel" aria-labelledby="timeline-title">
        <header class="panel-head">
          <h2 id="timeline-title">{t("timeline.title")}</h2>
          <BrushText brush={brush} whole={whole} now={now} clear={() => setBrush(null)} />
        </header>
        {timeline.rows.length ? (
          <>
            <Timeline timeline={timeline} whole={whole} now={now} brush={brush} setBrush={setBrush} />
            <MarkList timeline={timeline} whole={whole} now={now} brush={brush} setBrush={setBrush} />
            <TimelineTable timeline={timeline} now={now} />
          </>
        ) : (
          <p class="faint">{t("timeline.empty")}</p>
        )}
      </section>
      {wide ? (
        <div class="two">
          <section class="panel" aria-labelledby="logs-title">
            <header class="panel-head">
              <h2 id="logs-title">{t("tab.logs")}</h2>
            </header>
            {panel("logs")}
          </section>
          <section class="panel">
            <Tabs tabs={rest.map((name) => tabs[name])} selected={right} select={setTab} label={t("job.parts")} name="job" />
            <TabPanel name="job" selected={right}>
              {panel(right)}
            </TabPanel>
          </section>
        </div>
      ) : (
        <section class="panel">
          <Tabs tabs={TABS.map((name) => tabs[name])} selected={tab} select={setTab} label={t("job.parts")} name="job" />
          <TabPanel name="job" selected={tab}>
            {panel(tab)}
          </TabPanel>
        </section>
      )}
    </div>
  );
}

/** Other jobs on the same plots. */
export function withJobs(query: URLSearchParams): string[] {
  return (query.get("with") ?? "").split(",").filter((id) => id.split("/").length === 3);
}

function BackLink() {
  return (
    <a class="back" href={address([])}>
      <Icon name="left" size={14} />
      {t("nav.board")}
    </a>
  );
}

function JobHead({ detail, id, now, readOnly }: { detail: JobDetail; id: string; now: number; readOnly: boolean }) {
  const { row } = detail;
  const progress = detail.progress ?? row.progress;
  const metrics = metricsOf(progress);
  const facts: [string, string][] = [
    [t("column.ready"), `${row.ready}/${row.replicas}`],
    [t("column.restarts"), String(row.restarts)],
    [t("column.age"), ageText(row, now)],
    [t("job.running"), runTimeText(row, now)],
    ...(row.queue ? [[t("column.queue"), `${row.queue}${row.placeInLine != null ? ` · ${t("board.place", { n: row.placeInLine })}` : ""}`] as [string, string]] : []),
    ...(row.gangPhase ? [[t("job.gang"), row.gangPhase] as [string, string]] : []),
    ...metrics.slice(0, 4).map(([name, value]): [string, string] => [name, numberText(value)]),
  ];
  return (
    <header class="job-top">
      <div class="job-title">
        <h1>{row.name}</h1>
        <StateBadge state={row.state} text={row.stateText} />
        <span class="faint">
          {row.kind} · <a href={address([], { namespace: row.namespace })}>{row.namespace}</a>
        </span>
        <span class="grow" />
        {!readOnly && !row.deleted && <Actions id={id} row={row} allowed={detail.allowed} />}
      </div>
      {row.reason && <p class="job-reason">{row.reason}</p>}
      <dl class="facts">
        {progress && (
          <div class="fact wide">
            <dt>{t("column.progress")}</dt>
            <dd>
              <ProgressBar progress={progress} name={row.name} />
              {progress.step != null && <span class="sub">{progress.total ? t("progress.stepOf", { step: numberText(progress.step), total: numberText(progress.total) }) : t("progress.step", { step: numberText(progress.step) })}</span>}
            </dd>
          </div>
        )}
        {detail.goodput && Object.keys(detail.goodput).length > 0 && (
          <div class="fact wide">
            <dt>{t("job.goodput")}</dt>
            <dd>
              <GoodputBar seconds={detail.goodput} />
            </dd>
          </div>
        )}
        {facts.map(([name, value]) => (
          <div key={name} class="fact">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </header>
  );
}

function BrushText({ brush, whole, now, clear }: { brush: Range | null; whole: Range; now: number; clear: () => void }) {
  const range = brush ?? whole;
  return (
    <p class="brush-text" role="status">
      <span class="mono">
        {clockText(range.from, now)} – {clockText(range.to, now)}
      </span>
      <span class="faint">{durationText(range.to - range.from)}</span>
      {brush && (
        <button type="button" class="link" onClick={clear}>
          {t("timeline.clear")}
        </button>
      )}
    </p>
  );
}

