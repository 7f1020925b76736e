/** Numbers as people read them. */

/** A number with about four digits: 0.0123, 1.5e-7, 12,300. */
export function numberText(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e7) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 8 });
}

export function percentText(fraction: number): string {
  const bounded = Math.min(1, Math.max(0, fraction));
  return `${bounded >= 1 ? 100 : Math.min(99, Math.floor(bounded * 100))} %`;
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytesText(value: number): string {
  let rest = value;
  let unit = 0;
  while (rest >= 1024 && unit < BYTES.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${rest >= 100 || unit === 0 ? Math.round(rest) : rest.toFixed(1).replace(/\.0$/, "")} ${BYTES[unit]}`;
}

/** An amount of a resource: memory and storage in bytes, all else a count. */
export function amountText(resource: string, value: number): string {
  return /memory|storage|hugepages/.test(resource) ? bytesText(value) : numberText(Math.round(value * 100) / 100);
}

/** Steps of an axis: at most `most` round numbers between two others. */
export function numberTicks(low: number, high: number, most: number): number[] {
  if (!(high > low) || most < 1) return [low];
  const raw = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => (high - low) / candidate <= most) ?? 10 * power;
  const ticks: number[] = [];
  for (let index = Math.ceil(low / step); index * step <= high + step * 1e-9; index += 1) ticks.push(Number((index * step).toPrecision(12)));
  return ticks;
}
