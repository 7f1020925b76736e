import assert from "node:assert/strict";
import { test } from "node:test";
import type { TeamTimeline } from "../src/api";
import { around, isLive, layoutOf, linkPath, nextMark, rowTop, shares, wholeRange } from "../src/model/timeline";

const timeline: TeamTimeline = {
  start: 100,
  end: 200,
  rows: [
    { name: "worker-0", type: "Worker", index: 0, spans: [{ state: "waiting", start: 100, end: 110 }, { state: "running", start: 110, end: null }] },
    { name: "worker-1", type: "Worker", index: 1, spans: [{ state: "running", start: 110, end: 150 }, { state: "failed", start: 150, end: null }] },
  ],
  marks: [
    { kind: "first-failure", at: 150, row: "worker-1", text: "exit 137", cause: true },
    { kind: "failure", at: 152, row: "worker-0", text: "lost its peer" },
    { kind: "operator", at: 155, row: null, text: "restarts the team" },
  ],
  links: [{ causeMark: 0, consequenceMarks: [1, 2] }],
  phases: [{ state: "Running", start: 110, end: null }],
};

test("while something lasts, the range ends now; after that, at the end", () => {
  assert.deepEqual(wholeRange(timeline, 300_000), { from: 100_000, to: 300_000 });
  assert.ok(isLive(timeline));
  const ended = { ...timeline, rows: timeline.rows.slice(1), phases: [{ state: "Failed", start: 150, end: null }] };
  assert.deepEqual(wholeRange(ended, 300_000), { from: 100_000, to: 200_000 });
  assert.ok(!isLive(ended));
});

test("spans lie side by side in the row of their replica", () => {
  const { spans } = layoutOf(timeline, { from: 100_000, to: 200_000 }, 50, 1000);
  assert.equal(spans.length, 4);
  const [waiting, running] = spans;
  assert.ok(waiting && running);
  assert.equal(waiting.x, 50);
  assert.equal(waiting.x + waiting.width, running.x);
  assert.ok(running.open && running.x + running.width === 1050);
  assert.ok(waiting.y > rowTop(0) && waiting.y < rowTop(1));
});

test("what is outside of the view is left out, and what crosses its edge is cut", () => {
  const { spans, marks, links } = layoutOf(timeline, { from: 120_000, to: 140_000 }, 0, 100);
  assert.deepEqual(spans.map((span) => [span.x, span.width]), [[0, 100], [0, 100]]);
  assert.deepEqual([marks.length, links.length], [0, 0]);
});

test("a short span can still be seen", () => {
  const brief = { ...timeline, rows: [{ name: "a", type: "Worker", index: 0, spans: [{ state: "failed", start: 150, end: 150.001 }] }] };
  const [span] = layoutOf(brief, { from: 100_000, to: 200_000 }, 0, 100).spans;
  assert.ok(span && span.width >= 2);
});

test("the first failure is joined to its consequences", () => {
  const { marks, links } = layoutOf(timeline, { from: 100_000, to: 200_000 }, 0, 1000);
  assert.deepEqual(marks.map((mark) => [mark.mark.kind, mark.row, mark.consequence]), [["first-failure", 1, false], ["failure", 0, true], ["operator", -1, true]]);
  assert.equal(links.length, 2);
  assert.deepEqual(links[0]?.from, { x: marks[0]?.x, y: marks[0]?.y });
  assert.match(linkPath(links[0]!), /^M[\d.]+,[\d.]+ C/);
});

test("a link with marks that are not there is ignored", () => {
  const broken = { ...timeline, links: [{ causeMark: 9, consequenceMarks: [0] }, { causeMark: 0, consequenceMarks: [7, 0] }] };
  assert.deepEqual(layoutOf(broken, { from: 100_000, to: 200_000 }, 0, 1000).links, []);
});

test("around a mark is never outside of the run", () => {
  const whole = { from: 100_000, to: 200_000 };
  assert.deepEqual(around(100_000, whole), { from: 100_000, to: 105_000 });
  assert.deepEqual(around(200_000, whole), { from: 195_000, to: 200_000 });
});

test("shares of a row add up to one", () => {
  const parts = shares(timeline.rows[0]!.spans, { from: 100_000, to: 200_000 });
  assert.deepEqual(parts.map((part) => part.state), ["running", "waiting"]);
  assert.ok(Math.abs(parts.reduce((sum, part) => sum + part.share, 0) - 1) < 1e-9);
});

test("marks are stepped through in both directions, and the ends hold", () => {
  const { marks } = timeline;
  assert.equal(nextMark(marks, null, 1), 0);
  assert.equal(nextMark(marks, 150_000, 1), 1);
  assert.equal(nextMark(marks, 155_000, 1), 2);
  assert.equal(nextMark(marks, 152_000, -1), 0);
  assert.equal(nextMark(marks, 150_000, -1), 0);
  assert.equal(nextMark([], null, 1), -1);
});
