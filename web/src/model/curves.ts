/** Curves of several jobs on one plot: points are joined on a common x. */

import type { Curve, ReplicaUsage } from "../api";
import type { Range } from "./time";

export interface Series {
  label: string;
  points: [number, number | null][];
  /** Drawn thin: steps that were done again. */
  faint?: boolean;
}

/** Columns for a plot: all x in order, then for each series its value there. `undefined`: no point, the line goes on. */
export function joined(series: Series[]): [number[], ...(number | null | undefined)[][]] {
  const xs = [...new Set(series.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
  const columns = series.map((one) => {
    const values = new Map(one.points);
    return xs.map((x) => values.get(x));
  });
  return [xs, ...columns];
}

export interface Summary {
  first: number;
  last: number;
  lowest: number;
  highest: number;
  count: number;
}

export function summary(points: [number, number | null][]): Summary | null {
  const values = points.map(([, y]) => y).filter((y): y is number => y !== null && Number.isFinite(y));
  const [first] = values;
  const last = values[values.length - 1];
  if (first === undefined || last === undefined) return null;
  let [lowest, highest] = [first, first];
  for (const value of values) {
    if (value < lowest) lowest = value;
    if (value > highest) highest = value;
  }
  return { first, last, lowest, highest, count: values.length };
}

/** A logarithmic axis shows positive values only. */
export function canBeLog(curves: Curve[]): boolean {
  return curves.every((curve) => [...curve.points, ...(curve.repeated ?? [])].every(([, y]) => y === null || y > 0));
}

export interface Named {
  name: string;
  curves: { job: string; curve: Curve }[];
}

/** The curves of several jobs by metric, in the order in which metrics first appear. */
export function byMetric(jobs: { job: string; metrics: Curve[] }[]): Named[] {
  const groups = new Map<string, Named>();
  for (const { job, metrics } of jobs) {
    for (const curve of metrics) {
      const group = groups.get(curve.name) ?? { name: curve.name, curves: [] };
      group.curves.push({ job, curve });
      groups.set(curve.name, group);
    }
  }
  return [...groups.values()];
}

const MOST_NAMED = 6;

/** What replicas used, in their order: those with the highest peaks by name, the others of a large team thin. */
export function usageSeries(replicas: ReplicaUsage[]): Series[] {
  const peak = (one: ReplicaUsage): number => one.points.reduce((high, [, y]) => Math.max(high, y), 0);
  const ranked = [...replicas].sort((a, b) => peak(b) - peak(a)).slice(0, MOST_NAMED);
  const named = replicas.filter((one) => ranked.includes(one));
  const others = replicas.filter((one) => !ranked.includes(one));
  return [...named.map((one): Series => ({ label: one.replica, points: one.points })), ...others.map((one): Series => ({ label: one.replica, points: one.points, faint: true }))];
}

/** From the first to the last moment of all points, in milliseconds; null without any. */
export function commonSpan(all: [number, number | null][][]): Range | null {
  const ends = all.flatMap((points) => [points[0]?.[0], points[points.length - 1]?.[0]]).filter((x): x is number => x !== undefined);
  if (ends.length === 0) return null;
  const [from, to] = [Math.min(...ends) * 1000, Math.max(...ends) * 1000];
  return from < to ? { from, to } : null;
}
