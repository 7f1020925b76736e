/** The layout of a team timeline: where each span, mark and link is drawn. Decides everything, draws nothing. */

import type { Mark, Span, TeamTimeline } from "../api";
import { type Range, TimeScale, moment } from "./time";

export const ROW_HEIGHT = 26;
export const BAR_HEIGHT = 16;
export const PHASE_HEIGHT = 8;
export const AXIS_HEIGHT = 24;
const MINIMUM_WIDTH = 2;

export interface DrawnSpan {
  span: Span;
  row: number;
  x: number;
  y: number;
  width: number;
  from: number;
  to: number;
  open: boolean;
}

export interface DrawnMark {
  mark: Mark;
  index: number;
  at: number;
  row: number;
  x: number;
  y: number;
  consequence: boolean;
}

export interface DrawnLink {
  from: { x: number; y: number };
  to: { x: number; y: number };
}

export interface TimelineLayout {
  scale: TimeScale;
  height: number;
  rowNames: string[];
  phases: DrawnSpan[];
  spans: DrawnSpan[];
  marks: DrawnMark[];
  links: DrawnLink[];
}

/** From the first to the last moment of a timeline; while something lasts, to now. */
export function wholeRange(timeline: TeamTimeline, now: number): Range {
  const open = [...timeline.rows.flatMap((row) => row.spans), ...timeline.phases].some((span) => span.end === null && !FINAL.has(span.state));
  const from = moment(timeline.start) ?? now;
  const end = moment(timeline.end) ?? now;
  const to = open ? Math.max(now, end) : end;
  return { from, to: Math.max(to, from + 1000) };
}

/** States in which a replica stays without doing anything: they need no clock. */
const FINAL = new Set(["succeeded", "failed", "stopped", "lost", "Succeeded", "Failed", "Suspended"]);

export function isLive(timeline: TeamTimeline): boolean {
  return timeline.rows.some((row) => row.spans.some((span) => span.end === null && !FINAL.has(span.state)));
}

export function rowTop(row: number): number {
  return AXIS_HEIGHT + PHASE_HEIGHT + 10 + row * ROW_HEIGHT;
}

function drawn(span: Span, row: number, top: number, scale: TimeScale): DrawnSpan | null {
  const from = moment(span.start) ?? scale.range.from;
  const to = moment(span.end) ?? scale.range.to;
  if (to < scale.range.from || from > scale.range.to) return null;
  const x = scale.clampedX(from);
  const width = Math.max(MINIMUM_WIDTH, scale.clampedX(to) - x);
  return { span, row, x, y: top, width, from, to, open: span.end === null };
}

export function layoutOf(timeline: TeamTimeline, range: Range, left: number, width: number): TimelineLayout {
  const scale = new TimeScale(range, left, width);
  const rowNames = timeline.rows.map((row) => row.name);
  const place = new Map(rowNames.map((name, index) => [name, index]));
  const spans = timeline.rows.flatMap((row, index) =>
    row.spans.map((span) => drawn(span, index, rowTop(index) + (ROW_HEIGHT - BAR_HEIGHT) / 2, scale)).filter((span) => span !== null),
  );
  const phases = timeline.phases.map((span) => drawn(span, -1, AXIS_HEIGHT, scale)).filter((span) => span !== null);
  const consequences = new Set(timeline.links.flatMap((link) => link.consequenceMarks));
  const all = timeline.marks.map((mark, index): DrawnMark => {
    const at = moment(mark.at) ?? range.from;
    const row = mark.row === null || mark.row === undefined ? -1 : (place.get(mark.row) ?? -1);
    const y = row === -1 ? AXIS_HEIGHT + PHASE_HEIGHT / 2 : rowTop(row) + ROW_HEIGHT / 2;
    return { mark, index, at, row, x: scale.x(at), y, consequence: consequences.has(index) };
  });
  const visible = (mark: DrawnMark): boolean => mark.at >= range.from && mark.at <= range.to;
  const links = timeline.links.flatMap((link) => {
    const cause = all[link.causeMark];
    if (!cause || !visible(cause)) return [];
    return link.consequenceMarks.flatMap((index) => {
      const end = all[index];
      return end && end !== cause && visible(end) ? [{ from: { x: cause.x, y: cause.y }, to: { x: end.x, y: end.y } }] : [];
    });
  });
  return { scale, height: rowTop(timeline.rows.length) + 6, rowNames, phases, spans, marks: all.filter(visible), links };
}

/** A curve that leaves downwards or upwards and arrives from the left. */
export function linkPath(link: DrawnLink): string {
  const { from, to } = link;
  const bend = Math.max(10, Math.abs(to.x - from.x) / 2);
  return `M${round(from.x)},${round(from.y)} C${round(from.x)},${round((from.y + to.y) / 2)} ${round(to.x - bend)},${round(to.y)} ${round(to.x)},${round(to.y)}`;
}

export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** What to look at around a mark: a fifth of the run at most, ten seconds at least, within the run. */
export function around(at: number, whole: Range): Range {
  const half = Math.max(5_000, (whole.to - whole.from) / 20);
  const from = Math.max(whole.from, at - half);
  return { from, to: Math.max(from + 1000, Math.min(whole.to, at + half)) };
}

/** How much of each state a row has, longest first. */
export function shares(spans: Span[], whole: Range): { state: string; share: number }[] {
  const sums = new Map<string, number>();
  for (const span of spans) {
    const from = moment(span.start) ?? whole.from;
    const to = moment(span.end) ?? whole.to;
    sums.set(span.state, (sums.get(span.state) ?? 0) + Math.max(0, to - from));
  }
  const total = [...sums.values()].reduce((sum, value) => sum + value, 0);
  return [...sums].map(([state, length]) => ({ state, share: total ? length / total : 0 })).sort((a, b) => b.share - a.share);
}

/** The mark before or after a moment, for those who step through them. */
export function nextMark(marks: Mark[], at: number | null, by: 1 | -1): number {
  const moments = marks.map((mark) => moment(mark.at) ?? 0);
  if (!moments.length) return -1;
  if (at === null) return by > 0 ? 0 : moments.length - 1;
  if (by > 0) {
    const later = moments.findIndex((value) => value > at);
    return later === -1 ? moments.length - 1 : later;
  }
  const earlier = moments.findLastIndex((value) => value < at);
  return earlier === -1 ? 0 : earlier;
}
