/** The axes of a parallel plot: one for each parameter, then one for each metric. */

import type { Trial } from "../api";
import { numberText } from "./numbers";

export interface Axis {
  name: string;
  metric: boolean;
  log: boolean;
  /** Where a trial crosses the axis, 0 at the bottom to 1 at the top; null if it has no value there. */
  place: (trial: Trial) => number | null;
  labels: { at: number; text: string }[];
}

type Value = string | number | null | undefined;

function numeric(values: Value[]): number[] | null {
  const numbers: number[] = [];
  for (const value of values) {
    if (value === null || value === undefined || value === "") continue;
    const number = typeof value === "number" ? value : Number(value);
    if (!Number.isFinite(number)) return null;
    numbers.push(number);
  }
  return numbers.length ? numbers : null;
}

/** Values that span more than two powers of ten get a logarithmic axis. */
export function axisOf(name: string, metric: boolean, trials: Trial[], value: (trial: Trial) => Value): Axis {
  const numbers = numeric(trials.map(value));
  if (!numbers) {
    const names = [...new Set(trials.map((trial) => value(trial)).filter((one) => one !== null && one !== undefined).map(String))].sort();
    const height = (text: string): number => (names.length > 1 ? names.indexOf(text) / (names.length - 1) : 0.5);
    return {
      name,
      metric,
      log: false,
      place: (trial) => {
        const own = value(trial);
        return own === null || own === undefined ? null : height(String(own));
      },
      labels: names.map((text) => ({ at: height(text), text })),
    };
  }
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const log = low > 0 && high / low > 100;
  const scale = (number: number): number => {
    if (high === low) return 0.5;
    return log ? (Math.log(number) - Math.log(low)) / (Math.log(high) - Math.log(low)) : (number - low) / (high - low);
  };
  const middle = log ? Math.sqrt(low * high) : (low + high) / 2;
  return {
    name,
    metric,
    log,
    place: (trial) => {
      const own = value(trial);
      return own === null || own === undefined || own === "" ? null : scale(Number(own));
    },
    labels: high === low ? [{ at: 0.5, text: numberText(low) }] : [low, middle, high].map((one) => ({ at: scale(one), text: numberText(one) })),
  };
}

export function axesOf(trials: Trial[]): Axis[] {
  const keys = (pick: (trial: Trial) => Record<string, unknown>): string[] => [...new Set(trials.flatMap((trial) => Object.keys(pick(trial) ?? {})))];
  return [
    ...keys((trial) => trial.parameters).map((name) => axisOf(name, false, trials, (trial) => trial.parameters[name])),
    ...keys((trial) => trial.metrics).map((name) => axisOf(name, true, trials, (trial) => trial.metrics[name])),
  ];
}
