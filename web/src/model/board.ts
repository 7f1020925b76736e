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
