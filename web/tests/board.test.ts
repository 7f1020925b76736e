import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobRow } from "../src/api";
import { boardOf, patched, refusalSentences, rowKey, withHistory } from "../src/model/board";
import { NO_FILTERS, choices, filtersFrom, filtersQuery, laneColumn, lanes, matches, shownRows, stateCounts } from "../src/model/filters";

function job(name: string, change: Partial<JobRow> = {}): JobRow {
  const namespace = change.namespace ?? "team-a";
  return {
    id: `${namespace}/pytorchjobs/${name}`,
    namespace,
    plural: "pytorchjobs",
    kind: "PyTorchJob",
    name,
    uid: `uid-${name}`,
    state: "Running",
    progress: null,
    restarts: 0,
    ready: 1,
    replicas: 1,
    createdAt: "2026-11-18T04:00:00Z",
    ...change,
  };
}

test("filters survive the way through the address", () => {
  const filters = { ...NO_FILTERS, state: "Failed", text: "a b&c=1", layout: "lanes" as const, history: true };
  assert.deepEqual(filtersFrom(new URLSearchParams(filtersQuery(filters).toString())), filters);
  assert.equal(filtersQuery(NO_FILTERS).toString(), "");
  assert.equal(filtersFrom(new URLSearchParams("sort=nonsense&layout=x")).sort, "newest");
});

test("every word of the search must occur", () => {
  const row = job("bert", { reason: "worker-3 OOMKilled", queue: "gpu" });
  for (const text of ["bert", "OOM bert", "gpu", "team-a/bert", "pytorch"]) assert.ok(matches(row, { ...NO_FILTERS, text }), text);
  assert.ok(!matches(row, { ...NO_FILTERS, text: "bert cpu" }));
});

test("deleted jobs are shown with the history only", () => {
  const row = job("old", { deleted: true });
  assert.ok(!matches(row, NO_FILTERS));
  assert.ok(matches(row, { ...NO_FILTERS, history: true }));
});

test("what needs a person comes first when sorted by state", () => {
  const rows = [job("a"), job("b", { state: "Succeeded" }), job("c", { state: "Failed" }), job("d", { state: "Odd" }), job("e", { state: "Stalled" })];
  assert.deepEqual(shownRows(rows, { ...NO_FILTERS, sort: "state" }).map((row) => row.name), ["c", "e", "a", "b", "d"]);
});

test("names are sorted as people count", () => {
  const rows = [job("run-10"), job("run-9")];
  assert.deepEqual(shownRows(rows, { ...NO_FILTERS, sort: "name" }).map((row) => row.name), ["run-9", "run-10"]);
});

test("counts of states do not depend on the chosen state", () => {
  const rows = [job("a"), job("b", { state: "Failed" })];
  assert.deepEqual([...stateCounts(rows, { ...NO_FILTERS, state: "Failed" })], [["Failed", 1], ["Running", 1]]);
});

test("choices are sorted and without the empty one", () => {
  assert.deepEqual(choices([job("a", { queue: "z" }), job("b", { queue: "" }), job("c", { queue: "a" })], (row) => row.queue), ["a", "z"]);
});

test("a job is in the column of its end, its gang's phase, or its state", () => {
  assert.equal(laneColumn(job("a", { state: "Failed", gangPhase: "Running" })), "ended");
  assert.equal(laneColumn(job("a", { gangPhase: "Recovering" })), "recovering");
  assert.equal(laneColumn(job("a", { state: "Created", gangPhase: "Running" })), "running");
  assert.equal(laneColumn(job("a", { state: "Pending", gangPhase: "Unschedulable" })), "waiting");
  assert.equal(laneColumn(job("a", { state: "Stalled" })), "running");
});

test("who waits is in order of the line, and queues without jobs are there", () => {
  const byQueue = lanes([job("later", { state: "Pending", queue: "q", placeInLine: 2 }), job("next", { state: "Pending", queue: "q", placeInLine: 1 })], ["q", "idle"]);
  assert.deepEqual(byQueue.get("q")?.waiting.map((row) => row.name), ["next", "later"]);
  assert.deepEqual(byQueue.get("idle")?.running, []);
});

test("a patch changes, adds and removes rows, and leaves the old board alone", () => {
  const board = boardOf({ rows: [job("a"), job("b")], queues: [], refused: [] });
  const next = patched(board, { upsert: [job("b", { state: "Failed" }), job("c")], remove: ["team-a/pytorchjobs/a"] });
  assert.deepEqual([...next.rows.values()].map((row) => [row.name, row.state]), [["b", "Failed"], ["c", "Running"]]);
  assert.equal(board.rows.size, 2);
  assert.equal(board.rows.get("team-a/pytorchjobs/b")?.state, "Running");
});

test("the record adds jobs that are gone, not those that live", () => {
  const live = boardOf({ rows: [job("a")], queues: [], refused: [] }).rows;
  const rows = withHistory(live, [job("a"), job("a", { uid: "older" })]);
  assert.deepEqual(rows.map((row) => [row.uid, Boolean(row.deleted)]), [["uid-a", false], ["older", true]]);
  assert.equal(new Set(rows.map(rowKey)).size, 2);
});

test("what is refused is said once for all resources of which the same is true", () => {
  const message = (resource: string, rest: string): { resource: string; namespace: string; message: string } => ({ resource, namespace: "", message: `jane may not list ${resource} ${rest}` });
  const all = "in all namespaces; ask";
  const refused = [message("tfjobs", all), message("pods", "in all namespaces; shown are a"), message("mpijobs", all), { resource: "x", namespace: "", message: "the server is slow" }];
  assert.deepEqual(refusalSentences(refused), ["jane may not list tfjobs, mpijobs in all namespaces; ask", "jane may not list pods in all namespaces; shown are a", "the server is slow"]);
});
