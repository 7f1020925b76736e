/** Sweeps: a list of them; of one, the leaderboard and a parallel plot. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Sweep as SweepData, Trial } from "../api";
import { Empty, Failure, Loading, StateBadge, runTimeText } from "../components/ui";
import { Icon } from "../components/icons";
import { useFetched, useNow, useWidth } from "../hooks";
import { t } from "../i18n";
import { ENDED } from "../model/filters";
import { numberText } from "../model/numbers";
import { axesOf } from "../model/parallel";
import { address, jobAddress } from "../model/route";
import { clockText, moment } from "../model/time";
import { round } from "../model/timeline";

export function Sweeps() {
  const now = useNow(null);
  const answer = useFetched<{ sweeps: SweepData[] }>("api/sweeps");
  const list = answer.data?.sweeps ?? [];
  return (
    <div class="view">
      <header class="view-head">
        <h1>{t("nav.sweeps")}</h1>
      </header>
      <Failure message={answer.error} retry={answer.reload} />
      {answer.loading && answer.data === null && <Loading />}
      {answer.data !== null && list.length === 0 && (
        <Empty title={t("sweeps.none")}>
          <p class="faint">{t("sweeps.noneHint")}</p>
          <code class="command-line">gangline sweep job.yaml --set lr=0.1,0.01</code>
        </Empty>
      )}
      {list.length > 0 && (
        <section class="panel">
          <div class="table-scroll" tabIndex={0} role="group" aria-label={t("nav.sweeps")}>
            <table class="table">
              <thead>
                <tr>
                  {(["name", "trials", "metric", "best", "started"] as const).map((column) => (
                    <th key={column} scope="col">
                      {t(`column.${column}`)}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {list.map((sweep) => (
                  <tr key={sweep.name}>
                    <th scope="row">
                      <a href={address(["sweeps", sweep.name])}>{sweep.name}</a>
                    </th>
                    <td class="mono">{sweep.trials.length}</td>
                    <td>{sweep.metric}</td>
                    <td class="mono">{numberText(sweep.trials.find((trial) => trial.rank === 1)?.value)}</td>
                    <td class="mono">{clockText(Math.min(...sweep.trials.map((trial) => moment(trial.row.createdAt) ?? now)), now)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </div>
  );
}

export function Sweep({ name }: { name: string }) {
  const sweep = useFetched<SweepData>(`api/sweeps/${encodeURIComponent(name)}`);
  const [chosen, setChosen] = useState<number | null>(null);
  const data = sweep.data;
  const trials = data?.trials ?? [];
  const [first, ...others] = trials.map((trial) => trial.row.id);
  const running = trials.some((trial) => !ENDED.has(trial.row.state));
  useEffect(() => {
    if (!running) return undefined;
    const timer = window.setInterval(() => document.hidden || sweep.reload(), POLL);
    return () => window.clearInterval(timer);
  }, [running]);
  return (
    <div class="view">
      <a class="back" href={address(["sweeps"])}>
        <Icon name="left" size={14} />
        {t("nav.sweeps")}
      </a>
      <header class="view-head">
        <h1>{name}</h1>
        {data && <p class="faint">{t("sweeps.goal", { metric: data.metric, goal: data.maximize ? t("sweeps.max") : t("sweeps.min") })}</p>}
        <span class="grow" />
        {first && others.length > 0 && (
          <a class="button" href={jobAddress(first, { tab: "curves", with: others.slice(0, 5).join(",") })}>
            {t("sweeps.compare")}
          </a>
        )}
      </header>
      <Failure message={sweep.error} retry={sweep.reload} />
      {sweep.loading && data === null && <Loading />}
      {trials.length > 0 && (
        <>
          <section class="panel" aria-labelledby="plot-title">
            <header class="panel-head">
              <h2 id="plot-title">{t("sweeps.plot")}</h2>
            </header>
            <ParallelPlot trials={trials} chosen={chosen} choose={setChosen} />
          </section>
          <section class="panel" aria-labelledby="leader-title">
            <header class="panel-head">
              <h2 id="leader-title">{t("sweeps.leaderboard")}</h2>
            </header>
            <Leaderboard trials={trials} metric={data?.metric ?? null} chosen={chosen} choose={setChosen} />
          </section>
        </>
      )}
    </div>
  );
}

function Leaderboard({ trials, metric, chosen, choose }: { trials: Trial[]; metric: string | null; chosen: number | null; choose: (number: number | null) => void }) {
  const now = useNow(null);
  const parameters = [...new Set(trials.flatMap((trial) => Object.keys(trial.parameters)))];
  const metrics = [...new Set(trials.flatMap((trial) => Object.keys(trial.metrics)))].sort((a, b) => Number(b === metric) - Number(a === metric));
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label={t("sweeps.leaderboard")}>
      <table class="table leaderboard">
        <thead>
          <tr>
            <th scope="col">{t("column.rank")}</th>
            <th scope="col">{t("column.trial")}</th>
            {metrics.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
            {parameters.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
            <th scope="col">{t("column.state")}</th>
            <th scope="col">{t("column.duration")}</th>
            <th scope="col">{t("why.cause")}</th>
          </tr>
        </thead>
        <tbody>
          {trials.map((trial) => (
            <tr key={trial.number} data-chosen={trial.number === chosen ? "yes" : "no"} onMouseEnter={() => choose(trial.number)} onMouseLeave={() => choose(null)} onFocusCapture={() => choose(trial.number)} onBlurCapture={() => choose(null)}>
              <td class="mono">{trial.rank ?? "–"}</td>
              <th scope="row">
                <a href={jobAddress(trial.row.id)}>{trial.number}</a>
              </th>
              {metrics.map((name) => (
                <td key={name} class="mono">
                  {numberText(trial.metrics[name] ?? null)}
                </td>
              ))}
              {parameters.map((name) => (
                <td key={name} class="mono">
                  {String(trial.parameters[name] ?? "")}
                </td>
              ))}
              <td>
                <StateBadge state={trial.row.state} />
              </td>
              <td class="mono">{runTimeText(trial.row, now)}</td>
              <td>{trial.row.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const POLL = 3000;
const TOP = 34;
const PLOT = 220;

function ParallelPlot({ trials, chosen, choose }: { trials: Trial[]; chosen: number | null; choose: (number: number | null) => void }) {
  const [element, width] = useWidth<HTMLDivElement>();
  const axes = useMemo(() => axesOf(trials), [trials]);
  const best = trials.find((trial) => trial.rank === 1)?.number;
  const inner = Math.max(width, axes.length * 110) - 120;
  const x = (index: number): number => 50 + (axes.length > 1 ? (index / (axes.length - 1)) * inner : inner / 2);
  const y = (place: number): number => TOP + (1 - place) * PLOT;
  const path = (trial: Trial): string => {
    let drawing = false;
    return axes
      .map((axis, index) => {
        const place = axis.place(trial);
        if (place === null) {
          drawing = false;
          return "";
        }
        const command = `${drawing ? "L" : "M"}${round(x(index))},${round(y(place))}`;
        drawing = true;
        return command;
      })
      .join("");
  };
  return (
    <div class="parallel" ref={element} tabIndex={0} role="img" aria-label={t("sweeps.plotLabel", { n: trials.length, axes: axes.map((axis) => axis.name).join(", ") })}>
      {width > 0 && (
        <svg width={Math.max(width, axes.length * 110)} height={TOP + PLOT + 24} aria-hidden="true">
          {trials.map((trial) => (
            <path key={trial.number} class="trial" data-state={trial.row.state} data-chosen={trial.number === chosen ? "yes" : chosen !== null ? "no" : ""} data-best={trial.number === best ? "yes" : "no"} d={path(trial)} onMouseEnter={() => choose(trial.number)} onMouseLeave={() => choose(null)} />
          ))}
          {axes.map((axis, index) => (
            <g key={axis.name} class={axis.metric ? "axis metric" : "axis"} transform={`translate(${round(x(index))},0)`}>
              <path d={`M0,${TOP}V${TOP + PLOT}`} />
              <text class="axis-name" y={16} text-anchor={index === 0 ? "start" : index === axes.length - 1 ? "end" : "middle"}>
                {axis.name}
                {axis.log ? " (log)" : ""}
              </text>
              {axis.labels.map((label) => (
                <text key={label.text} class="axis-label" x={6} y={y(label.at) + 4}>
                  {label.text}
                </text>
              ))}
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}
