import assert from "node:assert/strict";
import { test } from "node:test";
import { TimeScale, clockText, durationText, inRange, moment, rangeOf, tickLabel, timeTicks } from "../src/model/time";

test("a moment is read from ISO texts and from seconds", () => {
  assert.equal(moment("2026-11-18T04:00:00Z"), Date.UTC(2026, 10, 18, 4));
  assert.equal(moment(1_500.25), 1_500_250);
  for (const none of [null, undefined, "", "soon", Number.NaN]) assert.equal(moment(none), null);
});

test("a range needs a beginning and a later end", () => {
  assert.deepEqual(rangeOf("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"), { from: 1000, to: 2000 });
  assert.equal(rangeOf("1970-01-01T00:00:02Z", "1970-01-01T00:00:02Z"), null);
  assert.equal(rangeOf(null, "1970-01-01T00:00:02Z"), null);
  assert.ok(inRange(5, null));
  assert.ok(!inRange(null, { from: 0, to: 9 }));
});

test("ticks are round, in range and few", () => {
  for (const length of [900, 7_000, 65_000, 3_600_000, 40 * 3_600_000, 90 * 86_400_000, 3_000 * 86_400_000]) {
    const range = { from: 1_700_000_123_456, to: 1_700_000_123_456 + length };
    const ticks = timeTicks(range, 8, 0);
    assert.ok(ticks.length >= 1 && ticks.length <= 9, `${length}: ${ticks.length} ticks`);
    for (const { at, step } of ticks) {
      assert.ok(at >= range.from && at <= range.to);
      assert.equal(at % step, 0);
    }
  }
  assert.deepEqual(timeTicks({ from: 5, to: 5 }, 8), []);
});

test("ticks of hours are round on the viewer's clock", () => {
  const [first] = timeTicks({ from: 0, to: 24 * 3_600_000 }, 4, 5 * 60 + 30);
  assert.ok(first);
  assert.equal((first.at + 5.5 * 3_600_000) % first.step, 0);
});

test("labels have as much of the clock as their step needs", () => {
  const at = new Date(2026, 10, 18, 4, 5, 6, 7).getTime();
  assert.equal(tickLabel(at, 60_000), "04:05");
  assert.equal(tickLabel(at, 1_000), "04:05:06");
  assert.equal(tickLabel(at, 100), "04:05:06.007");
  assert.equal(tickLabel(at, 86_400_000), "11-18");
});

test("a clock of another day has its date", () => {
  const now = new Date(2026, 10, 18, 12).getTime();
  assert.equal(clockText(new Date(2026, 10, 18, 4, 5, 6).getTime(), now), "04:05:06");
  assert.equal(clockText(new Date(2026, 10, 17, 4, 5, 6).getTime(), now), "11-17 04:05:06");
  assert.equal(clockText(new Date(2025, 10, 17, 4, 5, 6).getTime(), now), "2025-11-17 04:05:06");
  assert.equal(clockText(null, now), "");
});

test("durations have two units at most", () => {
  const cases: [number, string][] = [
    [-5, "0 ms"],
    [850, "850 ms"],
    [1_000, "1 s"],
    [1_550, "1.5 s"],
    [59_999, "59 s"],
    [60_000, "1 m"],
    [200_000, "3 m 20 s"],
    [7_500_000, "2 h 5 m"],
    [356_400_000, "4 d 3 h"],
  ];
  for (const [length, text] of cases) assert.equal(durationText(length), text);
});

test("a scale maps to pixels and back, and holds at its ends", () => {
  const scale = new TimeScale({ from: 1000, to: 3000 }, 100, 400);
  assert.equal(scale.x(2000), 300);
  assert.equal(scale.at(300), 2000);
  assert.equal(scale.at(-50), 1000);
  assert.equal(scale.clampedX(9999), 500);
  assert.equal(new TimeScale({ from: 5, to: 5 }, 10, 0).at(99), 5);
});
