/** Which rows of a long list are drawn. */

export interface RowWindow {
  first: number;
  last: number;
}

/** Rows from `first` to before `last`: those in sight and `around` more at each side. */
export function rowWindow(scrollTop: number, height: number, rowHeight: number, count: number, around = 8): RowWindow {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - around);
  const last = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + around);
  return { first: Math.min(first, count), last: Math.max(last, Math.min(first, count)) };
}
