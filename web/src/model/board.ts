/** The state of the board: a snapshot, then patches. */

import type { BoardPatch, BoardSnapshot, JobRow, QueueRow, Refusal } from "../api";

export interface Board {
  rows: ReadonlyMap<string, JobRow>;
  queues: QueueRow[];
  refused: Refusal[];
}

export function boardOf(snapshot: BoardSnapshot): Board {
  return { rows: new Map(snapshot.rows.map((row) => [rowKey(row), row])), queues: snapshot.queues ?? [], refused: snapshot.refused ?? [] };
}

/** Two jobs of one name that lived one after the other are two rows. */
export function rowKey(row: Pick<JobRow, "id" | "uid" | "deleted">): string {
  return row.deleted ? `${row.id}#${row.uid}` : row.id;
}

export function patched(board: Board, patch: BoardPatch): Board {
  const rows = new Map(board.rows);
  for (const id of patch.remove ?? []) rows.delete(id);
  for (const row of patch.upsert ?? []) rows.set(rowKey(row), row);
  return { rows, queues: patch.queues ?? board.queues, refused: patch.refused ?? board.refused };
}

/** Rows of the record beside those that live. */
export function withHistory(live: ReadonlyMap<string, JobRow>, recorded: JobRow[]): JobRow[] {
  const uids = new Set([...live.values()].map((row) => row.uid));
  return [...live.values(), ...recorded.filter((row) => !uids.has(row.uid)).map((row) => ({ ...row, deleted: true }))];
}

/** Sentences about what is refused; those that differ only by the resource are one. */
export function refusalSentences(refused: Refusal[]): string[] {
  const groups = new Map<string, { before: string; names: string[]; after: string }>();
  for (const { resource, message } of refused) {
    const at = message.indexOf(` ${resource} `);
    const [before, after] = at === -1 ? [message, ""] : [message.slice(0, at + 1), message.slice(at + 1 + resource.length)];
    const group = groups.get(`${before}|${after}`) ?? { before, names: [], after };
    if (at !== -1) group.names.push(resource);
    groups.set(`${before}|${after}`, group);
  }
  return [...groups.values()].map(({ before, names, after }) => before + names.join(", ") + after);
}
