import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogLine, NodeRow, Trial } from "../src/api";
import { gangsOf, patchedCluster, resourcesOf, useOf } from "../src/model/cluster";
import { byMetric, canBeLog, commonSpan, joined, summary, usageSeries } from "../src/model/curves";
import { type Shortcut, outcome, stepped } from "../src/model/keys";
import { appended, folded, pieces, plain, tone } from "../src/model/logs";
import { amountText, bytesText, numberText, numberTicks, percentText } from "../src/model/numbers";
import { axesOf } from "../src/model/parallel";
import { quantity } from "../src/model/quantity";
import { address, jobAddress, parsed } from "../src/model/route";
import { rowWindow } from "../src/model/window";

const line = (replica: string, text: string, more: Partial<LogLine> = {}): LogLine => ({ at: 1, replica, text, ...more });

test("equal lines of one replica that follow each other are folded", () => {
  const lines = [line("a", "x"), line("a", "x", { repeats: 3 }), line("b", "x"), line("a", "x"), line("a", "x", { attempt: 1 })];
  assert.deepEqual(folded(lines).map((one) => [one.replica, one.repeats ?? 1, one.attempt ?? 0]), [["a", 4, 0], ["b", 1, 0], ["a", 1, 0], ["a", 1, 1]]);
  assert.deepEqual(folded(folded(lines)), folded(lines));
});

test("a search is cut out of a line, and nothing of the line is lost", () => {
  for (const [text, search] of [["Loss loss LOSS", "loss"], ["no hit", "xyz"], ["", "x"], ["<b>x</b>", "<b>"], ["İstanbul", "stan"]] as const) {
    assert.equal(pieces(text, search).map((piece) => piece.text).join(""), text);
  }
  assert.deepEqual(pieces("a LOSS", "loss").map((piece) => piece.hit), [false, true]);
});

test("codes of terminals are removed", () => {
  assert.equal(plain("\u001b[1;31merror\u001b[0m at \u001b]8;;http://x\u0007here\u001b]8;;\u0007"), "error at here");
  assert.equal(plain("100 %"), "100 %");
});

test("a replica keeps its tone", () => {
  assert.equal(tone("worker-1", 6), tone("worker-1", 6));
  assert.ok(tone("worker-1", 6) < 6);
});

test("numbers are short", () => {
  const cases: [number | null, string][] = [[0, "0"], [12300, "12,300"], [0.012345, "0.01235"], [1.5e-7, "1.5e-7"], [2e9, "2e9"], [null, "–"], [Number.POSITIVE_INFINITY, "∞"]];
  for (const [value, text] of cases) assert.equal(numberText(value), text);
  assert.equal(percentText(0.9999), "99 %");
  assert.equal(percentText(1), "100 %");
  assert.equal(bytesText(1536), "1.5 KiB");
  assert.equal(amountText("memory", 2 ** 30), "1 GiB");
  assert.equal(amountText("cpu", 1.5), "1.5");
  assert.deepEqual(numberTicks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(numberTicks(3, 3, 5), [3]);
});

test("quantities mean numbers", () => {
  const cases: [string, number | null][] = [["250m", 0.25], ["1.5Gi", 1.5 * 2 ** 30], ["4", 4], ["2k", 2000], ["1e3", 1000], ["x", null], ["4Xi", null]];
  for (const [text, value] of cases) assert.equal(quantity(text), value);
});

test("columns of a plot are joined on x, and a missing point is a gap to be bridged", () => {
  assert.deepEqual(joined([{ label: "a", points: [[1, 10], [3, 30]] }, { label: "b", points: [[2, 20]] }]), [[1, 2, 3], [10, undefined, 30], [undefined, 20, undefined]]);
  assert.deepEqual(joined([]), [[]]);
});

test("a curve is summed up", () => {
  assert.deepEqual(summary([[1, 3], [2, null], [3, 1], [4, 2]]), { first: 3, last: 2, lowest: 1, highest: 3, count: 3 });
  assert.equal(summary([]), null);
});

test("only positive curves can have a logarithmic axis", () => {
  const curve = (points: [number, number | null][]) => ({ name: "x", points, marks: [] });
  assert.ok(canBeLog([curve([[1, 0.1], [2, null]])]));
  assert.ok(!canBeLog([curve([[1, 0]])]));
});

test("curves of several jobs meet by their names", () => {
  const curve = (name: string) => ({ name, points: [], marks: [] });
  const groups = byMetric([{ job: "a", metrics: [curve("loss"), curve("accuracy")] }, { job: "b", metrics: [curve("loss")] }]);
  assert.deepEqual(groups.map((group) => [group.name, group.curves.map((one) => one.job)]), [["loss", ["a", "b"]], ["accuracy", ["a"]]]);
});

test("axes of a sweep: numbers, powers of ten, names", () => {
  const trial = (rate: string, optimizer: string, loss: number | null): Trial => ({ rank: null, number: 1, value: loss, row: {} as Trial["row"], parameters: { rate, optimizer }, metrics: loss === null ? {} : { loss } });
  const trials = [trial("0.0001", "sgd", 3), trial("0.1", "adam", 1), trial("0.01", "adam", null)];
  const [rate, optimizer, loss] = axesOf(trials);
  assert.ok(rate && optimizer && loss);
  assert.ok(rate.log && !loss.log && loss.metric);
  assert.deepEqual(trials.map((one) => rate.place(one)).map((place) => Math.round((place ?? -1) * 100)), [0, 100, 67]);
  assert.deepEqual(trials.map((one) => optimizer.place(one)), [1, 0, 0]);
  assert.equal(loss.place(trials[2]!), null);
});

test("nodes: which resources, how full, which gang where", () => {
  const node = (name: string, used: number, jobs: string[]): NodeRow => ({ name, ready: true, gangs: jobs.map((job) => ({ namespace: "a", job, pods: 1 })), resources: { pods: { used: 1, free: 9, total: 10 }, "nvidia.com/gpu": { used, free: 8 - used, total: 8 }, cpu: { used: 0, free: 0, total: 0 } } });
  const nodes = [node("n1", 8, ["c"]), node("n2", 2, ["c", "d"])];
  assert.deepEqual(resourcesOf(nodes), ["cpu", "nvidia.com/gpu", "pods"]);
  assert.deepEqual(nodes.map((one) => [useOf(one, "nvidia.com/gpu"), useOf(one, "cpu")]), [[1, null], [0.25, null]]);
  assert.deepEqual(gangsOf(nodes), [{ name: "a/c", nodes: 2, pods: 2 }, { name: "a/d", nodes: 1, pods: 1 }]);
  const next = patchedCluster({ nodes }, { upsert: [node("n2", 0, []), node("n3", 0, [])], remove: ["n1"] });
  assert.deepEqual(next.nodes.map((one) => one.name), ["n2", "n3"]);
});

test("keys run at once or wait for the second one, and inner shortcuts win", () => {
  const ran: string[] = [];
  const shortcut = (keys: string, name = keys): Shortcut => ({ keys, label: "keys.help", run: () => ran.push(name) });
  const all = [shortcut("g b"), shortcut("j", "page"), shortcut("j", "view")];
  assert.deepEqual(outcome(all, "", "g"), { kind: "wait", prefix: "g" });
  const second = outcome(all, "g", "b");
  if (second.kind === "run") second.shortcut.run();
  const inner = outcome(all, "g", "j");
  if (inner.kind === "run") inner.shortcut.run();
  assert.deepEqual(ran, ["g b", "view"]);
  assert.equal(outcome(all, "", "z").kind, "none");
});

test("steps in a list hold at its ends", () => {
  assert.deepEqual([stepped(-1, 1, 3), stepped(-1, -1, 3), stepped(2, 1, 3), stepped(0, -1, 3), stepped(0, 1, 0)], [0, 2, 2, 0, -1]);
});

test("addresses survive the way there and back, with anything in them", () => {
  const query = new URLSearchParams({ text: "a&b=#?", from: "2026-11-18T04:00:00Z" });
  const route = parsed(address(["job", "team a", "x/y", "<b>"], query));
  assert.deepEqual(route.path, ["job", "team a", "x/y", "<b>"]);
  assert.equal(route.query.toString(), query.toString());
  assert.deepEqual(parsed("").path, []);
  assert.deepEqual(parsed("#/%E0%A4%A").path, ["%E0%A4%A"]);
  assert.equal(jobAddress("a/pytorchjobs/b", { uid: "1", tab: null }), "#/job/a/pytorchjobs/b?uid=1");
});

test("few of many rows are drawn, and those in sight are among them", () => {
  for (const [top, height] of [[0, 600], [48_000, 600], [95_900, 600], [999_999, 600]] as const) {
    const { first, last } = rowWindow(top, height, 48, 2000);
    assert.ok(first >= 0 && last <= 2000 && first <= last && last - first < 40, `${first} ${last}`);
    if (top < 96_000) assert.ok(first * 48 <= top && (last === 2000 || last * 48 >= top + height));
  }
  assert.deepEqual(rowWindow(0, 600, 48, 0), { first: 0, last: 0 });
});

test("of a large team those that use most have a name, and the others are thin", () => {
  const replicas = Array.from({ length: 9 }, (_, index) => ({ replica: `worker-${index}`, points: [[0, 1], [10, index]] as [number, number][] }));
  const series = usageSeries(replicas);
  assert.deepEqual(series.filter((one) => !one.faint).map((one) => one.label), ["worker-3", "worker-4", "worker-5", "worker-6", "worker-7", "worker-8"]);
  assert.equal(series.length, 9);
  assert.ok(usageSeries(replicas.slice(0, 3)).every((one) => !one.faint));
});

test("plots over time share one axis: from the first point of any to the last", () => {
  assert.deepEqual(commonSpan([[[5, 1], [9, 1]], [], [[2, 1], [7, null]]]), { from: 2000, to: 9000 });
  assert.equal(commonSpan([[], []]), null);
  assert.equal(commonSpan([[[5, 1]]]), null);
});

test("new lines come after those that are there, folded with the last, and a long log loses its beginning", () => {
  const before = [line("a", "x"), line("a", "y")];
  assert.deepEqual(appended(before, [line("a", "y"), line("b", "z")], true, 10).map((one) => [one.text, one.repeats ?? 1]), [["x", 1], ["y", 2], ["z", 1]]);
  assert.equal(appended(before, [line("a", "y")], false, 10).length, 3);
  assert.deepEqual(appended(before, [line("b", "z")], true, 2).map((one) => one.text), ["y", "z"]);
  assert.deepEqual(appended([], [line("a", "x"), line("a", "x")], true, 9).map((one) => one.repeats), [2]);
});
