/** Log lines: folding and colours of replicas. */

import type { LogLine } from "../api";

/** Equal lines of one replica that follow each other become one, with the number of repeats. */
export function folded(lines: LogLine[]): LogLine[] {
  const result: LogLine[] = [];
  for (const line of lines) {
    const last = result[result.length - 1];
    if (last && last.replica === line.replica && last.text === line.text && (last.attempt ?? 0) === (line.attempt ?? 0)) {
      result[result.length - 1] = { ...last, repeats: (last.repeats ?? 1) + (line.repeats ?? 1) };
    } else {
      result.push(line);
    }
  }
  return result;
}

/** Lines with new ones after them; of a long log the last `most`. */
export function appended(lines: LogLine[], next: LogLine[], fold: boolean, most: number): LogLine[] {
  const last = lines[lines.length - 1];
  const all = fold && last ? [...lines.slice(0, -1), ...folded([last, ...next])] : [...lines, ...(fold ? folded(next) : next)];
  return all.length > most ? all.slice(-most) : all;
}

/** One of `tones` places for a replica, the same every time. */
export function tone(replica: string, tones: number): number {
  let sum = 0;
  for (const character of replica) sum = (sum * 31 + (character.codePointAt(0) ?? 0)) % 9973;
  return sum % tones;
}

export interface Piece {
  text: string;
  hit: boolean;
}

/** A line cut where the searched text occurs, without regard to case. */
export function pieces(text: string, search: string): Piece[] {
  const needle = search.toLowerCase();
  const lower = text.toLowerCase();
  // Where lower case has another length than the text, places in one are not places in the other.
  if (!needle || lower.length !== text.length) return [{ text, hit: false }];
  const result: Piece[] = [];
  let from = 0;
  for (let at = lower.indexOf(needle); at !== -1; at = lower.indexOf(needle, from)) {
    if (at > from) result.push({ text: text.slice(from, at), hit: false });
    result.push({ text: text.slice(at, at + needle.length), hit: true });
    from = at + needle.length;
  }
  if (from < text.length || !result.length) result.push({ text: text.slice(from), hit: false });
  return result;
}

// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/** A line without the codes by which programs colour a terminal. */
export function plain(text: string): string {
  return text.includes("\u001b") ? text.replace(ESCAPES, "") : text;
}
