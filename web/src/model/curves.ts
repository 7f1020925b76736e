/** Curves of several jobs on one plot: points are joined on a common x. */

import type { Curve } from "../api";

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
