/** Curves of all reported numbers, over steps or time, with other jobs on the same plots. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Curve, CurvesAnswer, JobRow, ReplicaUsage } from "../api";
import { jobPath } from "../api";
import { Chart, DASHES } from "../components/chart";
import { Icon } from "../components/icons";
import { Empty, Failure, Field, Loading, Notice, Segments } from "../components/ui";
import { useViewer } from "../context";
import { useFetched } from "../hooks";
import { get, sentence } from "../http";
import { t, word } from "../i18n";
import { type Series, byMetric, canBeLog, commonSpan, summary, usageSeries } from "../model/curves";
import { bytesText, numberText } from "../model/numbers";
import type { Range } from "../model/time";

const POINTS = 500;
const HEIGHT = 190;
const POLL = 5000;

interface Properties {
  jobs: { id: string; uid: string | null }[];
  at: string | null;
  brush: Range | null;
  setBrush: (range: Range | null) => void;
  live: boolean;
  query: URLSearchParams;
  set: (change: Record<string, string | null>) => void;
}

interface Answers {
  jobs: { job: string; answer: CurvesAnswer }[];
  problems: string[];
}

export function Curves({ jobs, at, brush, setBrush, live, query, set }: Properties) {
  const { theme } = useViewer();
  // A brushed span is a span of time.
  const over = brush ? "time" : query.get("over") === "time" ? "time" : "step";
  const logs = new Set((query.get("log") ?? "").split(",").filter(Boolean));
  const linear = new Set((query.get("linear") ?? "").split(",").filter(Boolean));
  const [answers, setAnswers] = useState<Answers | null>(null);
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify([jobs, at, over]);

  useEffect(() => {
    const abort = new AbortController();
    const ask = async (job: { id: string; uid: string | null }): Promise<{ job: string; answer: CurvesAnswer | null; problem: string | null }> => {
      try {
        return { job: job.id, answer: await get<CurvesAnswer>(`${jobPath(job.id)}/curves`, { over, points: POINTS, uid: job.uid, at }, abort.signal), problem: null };
      } catch (error) {
        return { job: job.id, answer: null, problem: sentence(error) };
      }
    };
    void Promise.all(jobs.map(ask)).then((all) => {
      if (abort.signal.aborted) return;
      setAnswers({
        jobs: all.flatMap(({ job, answer }) => (answer ? [{ job, answer }] : [])),
        problems: all.flatMap(({ problem }) => (problem === null ? [] : [problem])),
      });
    });
    return () => abort.abort();
  }, [key, turn]);
  useEffect(() => {
    if (!live) return undefined;
    const timer = window.setInterval(() => document.hidden || setTurn((old) => old + 1), POLL);
    return () => window.clearInterval(timer);
  }, [live]);

  const groups = useMemo(() => byMetric((answers?.jobs ?? []).map(({ job, answer }) => ({ job, metrics: answer.metrics }))), [answers]);
  const names = jobs.map((job) => job.id);
  const toggle = (name: string, log: boolean): void => {
    const [from, to] = log ? [linear, logs] : [logs, linear];
    from.delete(name);
    to.add(name);
    set({ log: [...logs].join(",") || null, linear: [...linear].join(",") || null });
  };
  const usage = answers?.jobs[0]?.answer.usage ?? null;
  // Over time, all plots have one axis.
  const span = useMemo(() => {
    const reported = over === "time" ? groups.flatMap((group) => group.curves.map((one) => one.curve.points)) : [];
    return commonSpan([...reported, ...(usage?.cpu ?? []).map((one) => one.points)]);
  }, [groups, usage, over]);
  const shown = brush ?? span;

  return (
    <div class="curves">
      <div class="toolbar tight">
        <Segments
          label={t("curves.over")}
          value={over}
          options={[
            { id: "step", label: t("curves.step") },
            { id: "time", label: t("curves.time") },
          ]}
          choose={(next) => {
            if (next === "step" && brush) setBrush(null);
            set({ over: next === "time" ? "time" : null, ...(next === "step" ? { from: null, to: null } : {}) });
          }}
        />
        <span class="grow" />
        <Compare jobs={names} add={(id) => set({ with: [...names.slice(1), id].join(",") })} remove={(id) => set({ with: names.slice(1).filter((one) => one !== id).join(",") || null })} />
      </div>
      {answers?.problems.map((problem) => <Failure key={problem} message={problem} />)}
      {answers === null && <Loading />}
      {answers !== null && groups.length === 0 && answers.problems.length === 0 && (
        <Empty title={t("curves.none")}>
          <p class="faint">{t("curves.noneHint")}</p>
        </Empty>
      )}
      <div class="chart-grid">
        {groups.map((group) => {
          const curves = group.curves.map((one) => one.curve);
          const possible = canBeLog(curves);
          const log = possible && (logs.has(group.name) || (!linear.has(group.name) && curves.some((curve) => curve.prefersLog)));
          return <MetricChart key={group.name} name={group.name} curves={group.curves} names={names} log={log} possible={possible} toggle={(next) => toggle(group.name, next)} over={over} range={over === "time" ? shown : null} setBrush={setBrush} theme={theme} />;
        })}
      </div>
      {usage && (usage.cpu.length > 0 || usage.note) && (
        <section class="usage" aria-label={t("usage.title")}>
          <h3>{t("usage.title")}</h3>
          {usage.note && <Notice tone="info">{usage.note}</Notice>}
          {usage.cpu.length > 0 && (
            <div class="chart-grid">
              <UsageChart title={t("usage.cpu")} replicas={usage.cpu} format={(value) => numberText(value)} range={shown} setBrush={setBrush} theme={theme} />
              <UsageChart title={t("usage.memory")} replicas={usage.memory} format={bytesText} bytes range={shown} setBrush={setBrush} theme={theme} />
            </div>
          )}
        </section>
      )}
    </div>
  );
}

function short(id: string): string {
  return id.split("/").at(-1) ?? id;
}

interface ChartProperties {
  name: string;
  curves: { job: string; curve: Curve }[];
  names: string[];
  log: boolean;
  possible: boolean;
  toggle: (log: boolean) => void;
  over: "step" | "time";
  range: Range | null;
  setBrush: (range: Range | null) => void;
  theme: string;
}

function MetricChart({ name, curves, names, log, possible, toggle, over, range, setBrush, theme }: ChartProperties) {
  const several = names.length > 1;
  const series = useMemo((): Series[] => {
    const own = curves.map(({ job, curve }): Series => ({ label: [several ? short(job) : "", curve.replica ?? ""].filter(Boolean).join(" ") || name, points: curve.points }));
    const again = curves.flatMap(({ job, curve }): Series[] => (curve.repeated?.length ? [{ label: `${short(job)} ↻`, points: curve.repeated, faint: true }] : []));
    return [...own, ...again];
  }, [curves, several]);
  const marks = useMemo(() => curves.flatMap(({ curve }) => curve.marks), [curves]);
  const facts = summary(curves[0]?.curve.points ?? []);
  const label = facts ? t("curves.label", { name, first: numberText(facts.first), last: numberText(facts.last), low: numberText(facts.lowest), high: numberText(facts.highest), n: facts.count, marks: marks.length }) : name;
  return (
    <figure class="chart-card">
      <figcaption class="chart-head">
        <strong>{name}</strong>
        {facts && !several && (
          <span class="faint mono">
            {numberText(facts.first)} → <span class="chart-last">{numberText(facts.last)}</span>
          </span>
        )}
        <span class="grow" />
        {possible && (
          <button type="button" class="chip" aria-pressed={log} onClick={() => toggle(!log)}>
            {t("curves.log")}
          </button>
        )}
      </figcaption>
      <Chart series={series} marks={marks} log={log} time={over === "time"} height={HEIGHT} group={over} range={range} label={label} setRange={setBrush} theme={theme} />
      {series.length > 1 && <SeriesLegend series={series} />}
      {marks.length > 0 && (
        <p class="chart-marks faint">
          <span aria-hidden="true">▾ </span>
          {[...new Set(marks.map((mark) => mark.text || word("mark", mark.kind)))].slice(0, 3).join(" · ")}
        </p>
      )}
    </figure>
  );
}

function SeriesLegend({ series }: { series: Series[] }) {
  return (
    <ul class="legend">
      {series.map((one, index) => (
        <li key={index}>
          <svg width="26" height="10" aria-hidden="true">
            <path class="series-line" data-series={(index % 6) + 1} d="M1 5H25" stroke-dasharray={(DASHES[index % DASHES.length] ?? []).join(" ")} />
          </svg>
          {one.label}
        </li>
      ))}
    </ul>
  );
}

interface UsageProperties {
  title: string;
  replicas: ReplicaUsage[];
  format: (value: number) => string;
  bytes?: boolean;
  range: Range | null;
  setBrush: (range: Range | null) => void;
  theme: string;
}

function UsageChart({ title, replicas, format, bytes = false, range, setBrush, theme }: UsageProperties) {
  const series = useMemo(() => usageSeries(replicas), [replicas]);
  const facts = summary(replicas.flatMap((one) => one.points));
  const named = series.filter((one) => !one.faint);
  const peak = facts ? t("usage.peak", { value: format(facts.highest) }) : "";
  return (
    <figure class="chart-card">
      <figcaption class="chart-head">
        <strong>{title}</strong>
        {facts && <span class="faint mono">{peak}</span>}
      </figcaption>
      <Chart series={series} marks={[]} log={false} time height={140} group="time" range={range} label={facts ? `${title}: ${peak}` : title} format={format} bytes={bytes} setRange={setBrush} theme={theme} />
      {series.length > 1 && <SeriesLegend series={named} />}
      {series.length > named.length && <p class="chart-marks faint">{t("usage.others", { n: series.length - named.length })}</p>}
    </figure>
  );
}

/** Other jobs on the same plots, chosen by name. */
function Compare({ jobs, add, remove }: { jobs: string[]; add: (id: string) => void; remove: (id: string) => void }) {
  const [open, setOpen] = useState(false);
  const others = useFetched<{ rows: JobRow[] }>(open ? "api/jobs" : null, { limit: 200 });
  const candidates = (others.data?.rows ?? []).filter((row) => !jobs.includes(row.id));
  return (
    <div class="compare">
      {jobs.slice(1).map((id) => (
        <span key={id} class="chip">
          {short(id)}
          <button type="button" class="chip-close" aria-label={t("curves.remove", { name: short(id) })} onClick={() => remove(id)}>
            <Icon name="close" size={12} />
          </button>
        </span>
      ))}
      {open ? (
        <Field label={t("curves.compare")} hidden>
          <select class="select" value="" onChange={(event) => event.currentTarget.value && add(event.currentTarget.value)}>
            <option value="">{others.loading ? t("loading") : t("curves.choose")}</option>
            {candidates.map((row) => (
              <option key={row.id} value={row.id}>
                {row.namespace}/{row.name} ({row.kind})
              </option>
            ))}
          </select>
        </Field>
      ) : (
        <button type="button" class="button small" onClick={() => setOpen(true)}>
          {t("curves.compare")}
        </button>
      )}
    </div>
  );
}
