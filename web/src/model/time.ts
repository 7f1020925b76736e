/** Moments, durations and the axis of time. All moments here are milliseconds since 1970. */

import type { Moment } from "../api";

export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** A moment of the API in milliseconds; null for none and for what is no moment. */
export function moment(value: Moment | null | undefined): number | null {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "number") return Number.isFinite(value) ? value * SECOND : null;
  const parsed = Date.parse(value);
  if (!Number.isNaN(parsed)) return parsed;
  const seconds = Number(value);
  return Number.isFinite(seconds) ? seconds * SECOND : null;
}

export interface Range {
  from: number;
  to: number;
}

/** A range from two texts of the address; null if they give none. */
export function rangeOf(from: string | null, to: string | null): Range | null {
  const start = moment(from);
  const end = moment(to);
  return start !== null && end !== null && end > start ? { from: start, to: end } : null;
}

export function inRange(at: number | null, range: Range | null): boolean {
  return range === null || (at !== null && at >= range.from && at <= range.to);
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE,
  10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY,
];

/** Round moments between two others, at most `most` of them, on the viewer's clock (`offset` minutes east of UTC). */
export function timeTicks(range: Range, most: number, offset = -new Date(range.from).getTimezoneOffset()): { at: number; step: number }[] {
  const length = range.to - range.from;
  if (!(length > 0) || most < 1) return [];
  const step = STEPS.find((candidate) => length / candidate <= most) ?? Math.ceil(length / most / (28 * DAY)) * 28 * DAY;
  const shift = offset * MINUTE;
  const ticks: { at: number; step: number }[] = [];
  for (let at = Math.ceil((range.from + shift) / step) * step - shift; at <= range.to; at += step) ticks.push({ at, step });
  return ticks;
}

const two = (value: number): string => String(Math.floor(value)).padStart(2, "0");

/** A tick's label: as much of date and clock as its step needs. */
export function tickLabel(at: number, step: number): string {
  const date = new Date(at);
  if (step >= DAY) return `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= MINUTE) return clock;
  const seconds = `${clock}:${two(date.getSeconds())}`;
  return step >= SECOND ? seconds : `${seconds}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** The clock of a moment; with the date if it is of another day than `now`. */
export function clockText(at: number | null, now: number, milliseconds = false): string {
  if (at === null) return "";
  const date = new Date(at);
  const today = new Date(now);
  const clock = tickLabel(at, milliseconds ? 1 : SECOND);
  const sameDay = date.toDateString() === today.toDateString();
  if (sameDay) return clock;
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return date.getFullYear() === today.getFullYear() ? `${day} ${clock}` : `${date.getFullYear()}-${day} ${clock}`;
}

/** A duration in two units at most: 850 ms, 42 s, 3 m 20 s, 2 h 5 m, 4 d 3 h. */
export function durationText(milliseconds: number): string {
  const length = Math.max(0, milliseconds);
  if (length < SECOND) return `${Math.round(length)} ms`;
  if (length < 10 * SECOND) return `${(Math.floor(length / 100) / 10).toFixed(1).replace(/\.0$/, "")} s`;
  if (length < MINUTE) return `${Math.floor(length / SECOND)} s`;
  const [big, small, unit, part]: [number, number, string, string] =
    length < HOUR ? [MINUTE, SECOND, "m", "s"] : length < DAY ? [HOUR, MINUTE, "h", "m"] : [DAY, HOUR, "d", "h"];
  const rest = Math.floor((length % big) / small);
  return `${Math.floor(length / big)} ${unit}${rest ? ` ${rest} ${part}` : ""}`;
}

/** A linear map from moments to pixels and back. */
export class TimeScale {
  constructor(
    readonly range: Range,
    readonly left: number,
    readonly width: number,
  ) {}

  x(at: number): number {
    const length = this.range.to - this.range.from;
    return length > 0 ? this.left + ((at - this.range.from) / length) * this.width : this.left;
  }

  clampedX(at: number): number {
    return Math.min(this.left + this.width, Math.max(this.left, this.x(at)));
  }

  at(x: number): number {
    if (this.width <= 0) return this.range.from;
    const share = Math.min(1, Math.max(0, (x - this.left) / this.width));
    return this.range.from + share * (this.range.to - this.range.from);
  }
}
