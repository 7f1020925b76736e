/** A stream of server-sent events that heals: it is opened again until the view is left. */

import { type ApiError, refusal } from "./http";

export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** The dashboard's server answers, but it does not follow the API server. */
  | { state: "stale"; since: number; reason: string }
  | { state: "cut"; since: number; retryAt: number }
  | { state: "ended" };

export interface Listener {
  snapshot: (data: unknown) => void;
  patch: (data: unknown) => void;
  connection: (connection: Connection) => void;
  /** The server says why there is nothing to follow. It is not asked again. */
  refused: (error: ApiError) => void;
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 10_000;
/** How long a page is out of sight before its streams are closed. */
export const HIDDEN_FOR = 60_000;

/** How long to wait before try number `tries` (from 0). */
export function waitBefore(tries: number): number {
  return Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** tries);
}

/** Opens a stream; returns what closes it. */
export function follow(url: string, listener: Listener): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let hiddenTimer = 0;
  let tries = 0;
  let cutSince: number | null = null;
  let stale: (Connection & { state: "stale" }) | null = null;
  let ended = false;

  const close = (): void => {
    source?.close();
    source = null;
    window.clearTimeout(timer);
  };

  const cut = (): void => {
    close();
    const now = Date.now();
    cutSince ??= now;
    const wait = waitBefore(tries);
    tries += 1;
    listener.connection({ state: "cut", since: cutSince, retryAt: now + wait });
    timer = window.setTimeout(() => void reopen(), wait);
  };

  // A stream does not say why it was not served; a request for the same does.
  const reopen = async (): Promise<void> => {
    const error = await refusal(url);
    if (ended) return;
    if (error && error.code >= 400 && error.code < 500 && error.code !== 429) {
      ended = true;
      listener.connection({ state: "ended" });
      listener.refused(error);
    } else open();
  };

  const received = (event: Event): unknown => {
    cutSince = null;
    tries = 0;
    return JSON.parse((event as MessageEvent<string>).data);
  };

  const receive = (name: "snapshot" | "patch") => (event: Event) => {
    const data = received(event);
    listener.connection(stale ?? { state: "live" });
    listener[name](data);
  };

  // An empty message: the server follows again.
  const receiveProblem = (event: Event): void => {
    const reason = (received(event) as { message: string }).message;
    stale = reason ? { state: "stale", since: stale?.since ?? Date.now(), reason } : null;
    listener.connection(stale ?? { state: "live" });
  };

  const open = (): void => {
    close();
    if (ended) return;
    if (cutSince === null) listener.connection({ state: "connecting" });
    stale = null;
    source = new EventSource(url);
    source.addEventListener("snapshot", receive("snapshot"));
    source.addEventListener("patch", receive("patch"));
    source.addEventListener("problem", receiveProblem);
    source.onerror = cut;
  };

  const retryNow = (): void => {
    if (!ended && source === null) {
      tries = 0;
      open();
    }
  };

  // Nobody looks: the server need not send. It is opened again when the page is seen.
  const visibility = (): void => {
    window.clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = window.setTimeout(close, HIDDEN_FOR);
    else retryNow();
  };

  window.addEventListener("online", retryNow);
  document.addEventListener("visibilitychange", visibility);
  open();
  return () => {
    ended = true;
    close();
    window.clearTimeout(hiddenTimer);
    window.removeEventListener("online", retryNow);
    document.removeEventListener("visibilitychange", visibility);
  };
}
