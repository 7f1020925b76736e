/** The board: all jobs the viewer may see, as a list or as lanes of queues. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { BoardPatch, BoardSnapshot, JobRow, QueueRow } from "../api";
import { Icon } from "../components/icons";
import { Choice, Empty, Failure, Field, Loading, Notice, ProgressBar, Refusals, Segments, StateBadge, ageText, leftText, metricsOf } from "../components/ui";
import { VirtualList } from "../components/virtual_list";
import { useViewer } from "../context";
import { go, useFetched, useFollowed, useMedia, useNow } from "../hooks";
import { withQuery } from "../http";
import { t, word } from "../i18n";
import { type Board as BoardData, boardOf, patched, rowKey, withHistory } from "../model/board";
import { type BoardFilters, LANE_COLUMNS, NO_FILTERS, choices, filtersFrom, filtersQuery, lanes, shownRows, stateCounts } from "../model/filters";
import { stepped } from "../model/keys";
import { amountText, numberText } from "../model/numbers";
import { quantity } from "../model/quantity";
import { address, jobAddress } from "../model/route";
import { useShortcuts } from "../shortcuts";

const ROW = 48;
const CARD = 108;
const LANE_CARDS = 12;

export function jobLink(row: JobRow): string {
  return jobAddress(row.id, row.deleted ? { uid: row.uid } : {});
}

export function Board({ query }: { query: URLSearchParams }) {
  const { at, session, report } = useViewer();
  const filters = filtersFrom(query);
  const now = useNow(1000);
  const past = at === null ? null : withQuery("api/jobs", { at, limit: 500 });
  // Without the right to list everywhere, one namespace is asked for by its name.
  const scope = session.canSeeAllNamespaces ? "" : filters.namespace;
  const board = useFollowed<BoardData, BoardPatch>(withQuery("api/stream", { view: "board", namespace: scope }), past, patched, (snapshot) => boardOf(snapshot as BoardSnapshot));
  useEffect(() => report(board.connection), [board.connection]);
  const recorded = useFetched<{ total: number; rows: JobRow[] }>(filters.history && at === null ? "api/jobs" : null, { history: true, limit: 500, namespace: filters.namespace, text: filters.text });

  const rows = useMemo(() => {
    const live = board.data?.rows ?? new Map<string, JobRow>();
    return filters.history ? withHistory(live, recorded.data?.rows ?? []) : [...live.values()];
  }, [board.data, filters.history, recorded.data]);
  const queryText = query.toString();
  const shown = useMemo(() => shownRows(rows, filters), [rows, queryText]);
  const counts = useMemo(() => stateCounts(rows, filters), [rows, queryText]);

  const set = (change: Partial<BoardFilters>): void => {
    go(address([], filtersQuery({ ...filters, ...change })), true);
  };
  const search = useRef<HTMLInputElement>(null);
  const [selected, setSelected] = useState(-1);
  const select = (index: number): void => {
    setSelected(index);
    focusRow(index);
  };
  const open = (): void => {
    const row = shown[selected];
    if (row) go(jobLink(row));
  };
  useShortcuts([
    { keys: "/", label: "keys.search", run: () => search.current?.focus() },
    { keys: "j", label: "keys.next", run: () => select(stepped(selected, 1, shown.length)) },
    { keys: "k", label: "keys.previous", run: () => select(stepped(selected, -1, shown.length)) },
    { keys: "Enter", label: "keys.open", run: open },
    { keys: "v", label: "keys.layout", run: () => set({ layout: filters.layout === "list" ? "lanes" : "list" }) },
    { keys: "x", label: "keys.clear", run: () => go(address([]), true) },
  ]);

  const filtered = filtersQuery({ ...filters, layout: "list", sort: "newest" }).size > 0;
  const namespaces = session.namespaces?.length ? session.namespaces : choices(rows, (row) => row.namespace);
  return (
    <div class="view">
      <header class="view-head">
        <h1>{t("board.title")}</h1>
        <StateCounts counts={counts} filters={filters} set={set} />
      </header>
      <div class="toolbar">
        <div class="search">
          <Icon name="search" />
          <Field label={t("board.search")} hidden>
            <input ref={search} class="input" type="search" placeholder={t("board.search")} value={filters.text} onInput={(event) => set({ text: event.currentTarget.value })} />
          </Field>
          <kbd aria-hidden="true">/</kbd>
        </div>
        <Choice label={t("filter.namespace")} all={t("filter.allNamespaces")} value={filters.namespace} values={namespaces} choose={(namespace) => set({ namespace })} />
        <Choice label={t("filter.kind")} all={t("filter.allKinds")} value={filters.kind} values={choices(rows, (row) => row.kind)} choose={(kind) => set({ kind })} />
        <Choice label={t("filter.queue")} all={t("filter.allQueues")} value={filters.queue} values={choices(rows, (row) => row.queue)} choose={(queue) => set({ queue })} />
        <Choice label={t("filter.sort")} all={t("sort.newest")} value={filters.sort === "newest" ? "" : filters.sort} values={(["name", "state", "progress", "restarts"] as const).map((name) => [name, t(`sort.${name}`)])} choose={(sort) => set({ sort: (sort || "newest") as BoardFilters["sort"] })} />
        {session.history && at === null && (
          <label class="check">
            <input type="checkbox" checked={filters.history} onChange={(event) => set({ history: event.currentTarget.checked })} />
            {t("board.history")}
          </label>
        )}
        <span class="grow" />
        <Segments
          label={t("board.layout")}
          value={filters.layout}
          options={[
            { id: "list", label: t("board.list"), icon: "list" },
            { id: "lanes", label: t("board.lanes"), icon: "lanes" },
          ]}
          choose={(layout) => set({ layout })}
        />
      </div>
      <Refusals refused={board.data?.refused.length ? board.data.refused : session.refused} />
      <Failure message={board.error} />
      <Failure message={recorded.error} retry={recorded.reload} />
      {recorded.data && recorded.data.total > recorded.data.rows.length && <Notice tone="info">{t("board.recordedPart", { n: recorded.data.rows.length, total: recorded.data.total })}</Notice>}
      {board.data === null && board.error === null && <Loading />}
      {board.data !== null && shown.length === 0 && filters.layout === "list" && <NoJobs filtered={filtered} any={rows.length > 0} />}
      {shown.length > 0 && filters.layout === "list" && <JobList rows={shown} selected={selected} now={now} />}
      {board.data !== null && filters.layout === "lanes" && <Lanes rows={shown} queues={board.data.queues} filters={filters} set={set} now={now} />}
    </div>
  );
}

function focusRow(index: number): void {
  // The row may have to be drawn first.
  window.setTimeout(() => document.querySelector<HTMLElement>(`[data-row="${index}"] a`)?.focus({ preventScroll: true }), 60);
}

function NoJobs({ filtered, any }: { filtered: boolean; any: boolean }) {
  if (filtered || any) {
    return (
      <Empty title={t("board.noMatch")}>
        <a class="button" href={address([])}>
          {t("board.clear")}
        </a>
      </Empty>
    );
  }
  return (
    <Empty title={t("board.empty")}>
      <p>{t("board.emptyHint")}</p>
      <a class="button primary" href={address(["submit"])}>
        {t("nav.submit")}
      </a>
    </Empty>
  );
}

function StateCounts({ counts, filters, set }: { counts: Map<string, number>; filters: BoardFilters; set: (change: Partial<BoardFilters>) => void }) {
  if (!counts.size) return null;
  const total = [...counts.values()].reduce((sum, value) => sum + value, 0);
  return (
    <div class="counts" role="group" aria-label={t("filter.state")}>
      <button type="button" class="count" aria-pressed={filters.state === ""} onClick={() => set({ state: "" })}>
        <strong>{numberText(total)}</strong> {t("board.all")}
      </button>
      {[...counts].map(([state, count]) => (
        <button key={state} type="button" class="count" data-state={state} aria-pressed={filters.state === state} onClick={() => set({ state: filters.state === state ? "" : state })}>
          <Icon name={state} size={14} />
          <strong>{numberText(count)}</strong> {word("state", state)}
        </button>
      ))}
    </div>
  );
}

function JobList({ rows, selected, now }: { rows: JobRow[]; selected: number; now: number }) {
  const narrow = useMedia("(max-width: 820px)");
  return (
    <div class="job-list" role="table" aria-label={t("board.title")} aria-rowcount={rows.length + 1}>
      <div role="rowgroup" class="job-head-group">
        <div role="row" class="job-head" aria-rowindex={1}>
          {(["state", "name", "progress", "ready", "restarts", "queue", "age", "reason"] as const).map((column) => (
            <span key={column} role="columnheader" class={`cell cell-${column}`}>
              {t(`column.${column}`)}
            </span>
          ))}
        </div>
      </div>
      <VirtualList
        count={rows.length}
        rowHeight={narrow ? CARD : ROW}
        scroller="page"
        role="rowgroup"
        show={selected}
        render={(index) => {
          const row = rows[index];
          return row && <JobLine key={rowKey(row)} row={row} index={index} selected={index === selected} now={now} />;
        }}
      />
    </div>
  );
}

function JobLine({ row, index, selected, now }: { row: JobRow; index: number; selected: boolean; now: number }) {
  const [metric] = metricsOf(row.progress);
  return (
    <div role="row" class={row.deleted ? "job-line deleted" : "job-line"} aria-rowindex={index + 2} data-row={index} data-id={row.id} data-selected={selected ? "yes" : "no"}>
      <span role="cell" class="cell cell-state">
        <StateBadge state={row.state} text={row.stateText} />
      </span>
      <span role="cell" class="cell cell-name">
        <a href={jobLink(row)}>{row.name}</a>
        <span class="sub">
          {row.namespace} · {row.kind}
          {row.deleted && <em> · {t("job.deleted")}</em>}
        </span>
      </span>
      <span role="cell" class="cell cell-progress">
        <ProgressBar progress={row.progress} name={row.name} plain />
        <span class="sub">{[leftText(row.progress), metric ? `${metric[0]} ${numberText(metric[1])}` : ""].filter(Boolean).join(" · ")}</span>
      </span>
      <span role="cell" class="cell cell-ready mono">
        <span class="cell-label">{t("column.ready")} </span>
        {row.ready}/{row.replicas}
      </span>
      <span role="cell" class="cell cell-restarts mono" data-some={row.restarts > 0 ? "yes" : "no"}>
        <span class="cell-label">{t("column.restarts")} </span>
        {row.restarts}
      </span>
      <span role="cell" class="cell cell-queue">
        {row.queue || <span class="faint">–</span>}
        {row.placeInLine != null && <span class="sub">{t("board.place", { n: row.placeInLine })}</span>}
      </span>
      <span role="cell" class="cell cell-age mono">{ageText(row, now)}</span>
      <span role="cell" class="cell cell-reason" title={row.reason ?? ""}>
        {row.reason || <span class="faint">–</span>}
      </span>
    </div>
  );
}

function Lanes({ rows, queues, filters, set, now }: { rows: JobRow[]; queues: QueueRow[]; filters: BoardFilters; set: (change: Partial<BoardFilters>) => void; now: number }) {
  const grouped = useMemo(() => lanes(rows, queues.map((queue) => queue.name)), [rows, queues]);
  const byName = new Map(queues.map((queue) => [queue.name, queue]));
  const names = [...grouped.keys()].filter((name) => !filters.queue || name === filters.queue).sort((a, b) => (a === "" ? 1 : b === "" ? -1 : a.localeCompare(b)));
  return (
    <div class="lanes">
      {names.map((name) => {
        const lane = grouped.get(name);
        const queue = byName.get(name);
        return (
          lane && (
            <section key={name} class="lane" aria-label={name || t("board.noQueue")}>
              <header class="lane-head">
                <h2>{name || t("board.noQueue")}</h2>
                {queue && <Share queue={queue} />}
              </header>
              <div class="lane-columns">
                {LANE_COLUMNS.map((column) => (
                  <div key={column} class="lane-column">
                    <h3>
                      {t(`lane.${column}`)} <span class="faint">{lane[column].length}</span>
                    </h3>
                    <ul class="cards">
                      {lane[column].slice(0, LANE_CARDS).map((row) => (
                        <Card key={rowKey(row)} row={row} now={now} />
                      ))}
                    </ul>
                    {lane[column].length > LANE_CARDS && (
                      <button type="button" class="link" onClick={() => set({ ...NO_FILTERS, queue: name, layout: "list" })}>
                        {t("more", { n: lane[column].length - LANE_CARDS })}
                      </button>
                    )}
                  </div>
                ))}
              </div>
            </section>
          )
        );
      })}
      {names.length === 0 && <NoJobs filtered={rows.length === 0} any={false} />}
    </div>
  );
}

/** What a queue deserves and what it holds, resource by resource. */
function Share({ queue }: { queue: QueueRow }) {
  const resources = [...new Set([...Object.keys(queue.deserved), ...Object.keys(queue.held)])].filter((name) => name !== "pods");
  return (
    <div class="share">
      <span class="faint">{t("queue.weight", { n: queue.weight ?? 1 })}</span>
      {resources.slice(0, 4).map((name) => {
        const held = quantity(queue.held[name]) ?? 0;
        const deserved = quantity(queue.deserved[name]) ?? 0;
        const share = deserved > 0 ? Math.min(1, held / deserved) : held > 0 ? 1 : 0;
        return (
          <span key={name} class="share-item" data-over={held > deserved && deserved > 0 ? "yes" : "no"}>
            <span class="share-track" aria-hidden="true">
              <span class="share-fill" style={{ inlineSize: `${share * 100}%` }} />
            </span>
            <span>{t("queue.share", { resource: name, held: amountText(name, held), deserved: amountText(name, deserved) })}</span>
          </span>
        );
      })}
    </div>
  );
}

function Card({ row, now }: { row: JobRow; now: number }) {
  return (
    <li class="card" data-state={row.state}>
      <div class="card-head">
        <a href={jobLink(row)}>{row.name}</a>
        <StateBadge state={row.state} text={row.stateText} />
      </div>
      <span class="sub">
        {row.namespace} · {row.kind} · {row.ready}/{row.replicas} · {ageText(row, now)}
        {row.placeInLine != null && ` · ${t("board.place", { n: row.placeInLine })}`}
      </span>
      {row.progress && <ProgressBar progress={row.progress} name={row.name} />}
      {row.reason && <p class="card-reason">{row.reason}</p>}
    </li>
  );
}
