/** What the board shows: read from the address, written to it, applied to rows. */

import type { JobRow } from "../api";
import { moment } from "./time";

export type Layout = "list" | "lanes";
export type SortBy = "newest" | "name" | "state" | "progress" | "restarts";

export interface BoardFilters {
  namespace: string;
  state: string;
  kind: string;
  queue: string;
  text: string;
  layout: Layout;
  sort: SortBy;
  history: boolean;
}

export const NO_FILTERS: BoardFilters = {
  namespace: "",
  state: "",
  kind: "",
  queue: "",
  text: "",
  layout: "list",
  sort: "newest",
  history: false,
};

const SORTS: SortBy[] = ["newest", "name", "state", "progress", "restarts"];

export function filtersFrom(query: URLSearchParams): BoardFilters {
  const sort = query.get("sort") as SortBy | null;
  return {
    namespace: query.get("namespace") ?? "",
    state: query.get("state") ?? "",
    kind: query.get("kind") ?? "",
    queue: query.get("queue") ?? "",
    text: query.get("text") ?? "",
    layout: query.get("layout") === "lanes" ? "lanes" : "list",
    sort: sort !== null && SORTS.includes(sort) ? sort : "newest",
    history: query.get("history") === "true",
  };
}

/** The filters as a query; what is as by default is left out. */
export function filtersQuery(filters: BoardFilters): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of Object.keys(NO_FILTERS) as (keyof BoardFilters)[]) {
    if (filters[name] !== NO_FILTERS[name]) query.set(name, String(filters[name]));
  }
  return query;
}

/** How a state weighs: what needs a person comes first. */
export const STATE_ORDER = ["Failed", "Stalled", "Blocked", "Restarting", "Pending", "Created", "Running", "Suspended", "Succeeded"];

export function stateWeight(state: string): number {
  const place = STATE_ORDER.indexOf(state);
  return place === -1 ? STATE_ORDER.length : place;
}

export const ENDED = new Set(["Succeeded", "Failed"]);

export function matches(row: JobRow, filters: BoardFilters): boolean {
  if (row.deleted && !filters.history) return false;
  if (filters.namespace && row.namespace !== filters.namespace) return false;
  if (filters.kind && row.kind !== filters.kind) return false;
  if (filters.queue && (row.queue ?? "") !== filters.queue) return false;
  if (filters.state === "active" ? ENDED.has(row.state) || row.deleted : filters.state && row.state !== filters.state) return false;
  const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const searched = `${row.namespace}/${row.name} ${row.kind} ${row.queue ?? ""} ${row.reason ?? ""}`.toLowerCase();
  return words.every((word) => searched.includes(word));
}

const byName = (a: JobRow, b: JobRow): number => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
const newest = (a: JobRow, b: JobRow): number => (moment(b.createdAt) ?? 0) - (moment(a.createdAt) ?? 0) || byName(a, b);
const done = (row: JobRow): number => row.progress?.fraction ?? -1;

const COMPARE: Record<SortBy, (a: JobRow, b: JobRow) => number> = {
  newest,
  name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) || byName(a, b),
  state: (a, b) => stateWeight(a.state) - stateWeight(b.state) || newest(a, b),
  progress: (a, b) => done(b) - done(a) || newest(a, b),
  restarts: (a, b) => b.restarts - a.restarts || newest(a, b),
};

export function shownRows(rows: Iterable<JobRow>, filters: BoardFilters): JobRow[] {
  return [...rows].filter((row) => matches(row, filters)).sort(COMPARE[filters.sort]);
}

/** How many rows each state has, before the filter of states. */
export function stateCounts(rows: Iterable<JobRow>, filters: BoardFilters): Map<string, number> {
  const counts = new Map<string, number>();
  for (const row of rows) {
    if (matches(row, { ...filters, state: "" })) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  }
  return new Map([...counts].sort(([a], [b]) => stateWeight(a) - stateWeight(b) || (a < b ? -1 : 1)));
}

/** Values of a column, sorted, without the empty one. */
export function choices(rows: Iterable<JobRow>, column: (row: JobRow) => string | null | undefined): string[] {
  const values = new Set<string>();
  for (const row of rows) {
    const value = column(row);
    if (value) values.add(value);
  }
  return [...values].sort((a, b) => a.localeCompare(b));
}

export type LaneColumn = "waiting" | "running" | "recovering" | "ended";
export const LANE_COLUMNS: LaneColumn[] = ["waiting", "running", "recovering", "ended"];

/** The column of a job in its queue's lane: by its end, then by the phase of its gang, then by its state. */
export function laneColumn(row: JobRow): LaneColumn {
  if (ENDED.has(row.state) || row.deleted) return "ended";
  if (row.gangPhase === "Recovering" || row.state === "Restarting") return "recovering";
  if (row.gangPhase === "Running" || ["Running", "Stalled"].includes(row.state)) return "running";
  return "waiting";
}

/** The jobs of each queue by column; those that wait, in their order in the line. */
export function lanes(rows: Iterable<JobRow>, queueNames: string[]): Map<string, Record<LaneColumn, JobRow[]>> {
  const empty = (): Record<LaneColumn, JobRow[]> => ({ waiting: [], running: [], recovering: [], ended: [] });
  const byQueue = new Map(queueNames.map((name) => [name, empty()]));
  for (const row of rows) {
    const name = row.queue ?? "";
    const lane = byQueue.get(name) ?? empty();
    byQueue.set(name, lane);
    lane[laneColumn(row)].push(row);
  }
  for (const lane of byQueue.values()) lane.waiting.sort((a, b) => (a.placeInLine ?? Infinity) - (b.placeInLine ?? Infinity) || newest(b, a));
  return byQueue;
}
