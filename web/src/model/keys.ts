/** Shortcuts: single keys and sequences of two, as "g b". */

import type { Key } from "../i18n";

export interface Shortcut {
  keys: string;
  /** The key of the text that the help shows. */
  label: Key;
  run: () => void;
}

export type Outcome = { kind: "run"; shortcut: Shortcut } | { kind: "wait"; prefix: string } | { kind: "none" };

/** What a key does after `prefix`. Later shortcuts win: a view's own come after those of the whole page. */
export function outcome(shortcuts: Shortcut[], prefix: string, key: string): Outcome {
  const typed = prefix ? `${prefix} ${key}` : key;
  for (let index = shortcuts.length - 1; index >= 0; index -= 1) {
    const shortcut = shortcuts[index];
    if (shortcut?.keys === typed) return { kind: "run", shortcut };
  }
  if (shortcuts.some((shortcut) => shortcut.keys.startsWith(`${typed} `))) return { kind: "wait", prefix: typed };
  return prefix ? outcome(shortcuts, "", key) : { kind: "none" };
}

/** The place after a step in a list; the ends hold. */
export function stepped(at: number, by: number, count: number): number {
  if (count === 0) return -1;
  if (at < 0) return by > 0 ? 0 : count - 1;
  return Math.min(count - 1, Math.max(0, at + by));
}
