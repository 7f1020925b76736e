/** Kubernetes quantities: `250m`, `1.5Gi`, `4`. */

const FACTORS: Record<string, number> = {
  "": 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** The number that a quantity means; null if it is none. */
export function quantity(text: string | number | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  if (typeof text === "number") return text;
  const parts = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]?i?)$/.exec(text.trim());
  const factor = parts?.[2] === undefined ? undefined : FACTORS[parts[2]];
  return parts && factor !== undefined ? Number(parts[1]) * factor : null;
}
