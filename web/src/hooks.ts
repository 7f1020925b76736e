/** What views share: the address, the clock, the size of an element, data that is fetched or followed. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, sentence, withQuery } from "./http";
import { type Connection, follow } from "./live";
import { type Route, parsed } from "./model/route";

export function useRoute(): Route {
  const [hash, setHash] = useState(window.location.hash);
  useEffect(() => {
    const changed = (): void => setHash(window.location.hash);
    window.addEventListener("hashchange", changed);
    window.addEventListener("gangline:route", changed);
    return () => {
      window.removeEventListener("hashchange", changed);
      window.removeEventListener("gangline:route", changed);
    };
  }, []);
  return parsed(hash);
}

/** Goes to an address of the page. With `replace`, "back" skips the one before. */
export function go(target: string, replace = false): void {
  if (!replace) {
    window.location.hash = target;
    return;
  }
  window.history.replaceState(null, "", target);
  window.dispatchEvent(new Event("gangline:route"));
}

/** Now, every `interval` milliseconds; it stands still while `interval` is null. */
export function useNow(interval: number | null = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    setNow(Date.now());
    if (interval === null) return undefined;
    const timer = window.setInterval(() => document.hidden || setNow(Date.now()), interval);
    return () => window.clearInterval(timer);
  }, [interval]);
  return now;
}

/** The width of an element as it is now. */
export function useWidth<T extends HTMLElement>(): [{ current: T | null }, number] {
  const element = useRef<T | null>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const node = element.current;
    if (!node) return undefined;
    setWidth(node.clientWidth);
    const observer = new ResizeObserver(() => setWidth(node.clientWidth));
    observer.observe(node);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => window.matchMedia(query).matches);
  useEffect(() => {
    const media = window.matchMedia(query);
    const changed = (): void => setMatches(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return matches;
}

export interface Loaded<T> {
  data: T | null;
  error: string | null;
  loading: boolean;
  reload: () => void;
}

/** What a path answers. A newer question makes the answer to an older one void; the old data stay until then. */
export function useFetched<T>(path: string | null, query: Record<string, string | number | boolean | null | undefined> = {}): Loaded<T> {
  const url = path === null ? null : withQuery(path, query);
  const [state, setState] = useState<{ data: T | null; error: string | null; loading: boolean }>({ data: null, error: null, loading: url !== null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (url === null) return undefined;
    const abort = new AbortController();
    setState((old) => ({ ...old, loading: true }));
    get<T>(url, {}, abort.signal).then(
      (data) => abort.signal.aborted || setState({ data, error: null, loading: false }),
      (error: unknown) => abort.signal.aborted || setState((old) => ({ data: old.data, error: sentence(error), loading: false })),
    );
    return () => abort.abort();
  }, [url, turn]);
  const reload = useCallback(() => setTurn((old) => old + 1), []);
  return { ...state, reload };
}

export interface Followed<T> {
  data: T | null;
  error: string | null;
  connection: Connection;
}

/** A view that is followed: its snapshot, then what `merge` makes of each patch. With `past`, that answer instead, once. */
export function useFollowed<T, P>(stream: string, past: string | null, merge: (data: T, patch: P) => T, first: (snapshot: unknown) => T): Followed<T> {
  const [state, setState] = useState<Followed<T>>({ data: null, error: null, connection: { state: "connecting" } });
  useEffect(() => {
    setState({ data: null, error: null, connection: { state: "connecting" } });
    if (past !== null) {
      const abort = new AbortController();
      get<unknown>(past, {}, abort.signal).then(
        (data) => setState({ data: first(data), error: null, connection: { state: "live" } }),
        (error: unknown) => abort.signal.aborted || setState({ data: null, error: sentence(error), connection: { state: "live" } }),
      );
      return () => abort.abort();
    }
    // Patches that arrive between two frames are drawn together.
    let waiting: P[] = [];
    let frame = 0;
    const flush = (): void => {
      frame = 0;
      const patches = waiting;
      waiting = [];
      setState((old) => (old.data === null ? old : { ...old, data: patches.reduce(merge, old.data) }));
    };
    const stop = follow(stream, {
      snapshot: (data) => {
        waiting = [];
        const body = data as { error?: { message?: string } };
        if (body.error) setState((old) => ({ ...old, error: body.error?.message ?? "" }));
        else setState((old) => ({ ...old, data: first(data), error: null }));
      },
      patch: (data) => {
        waiting.push(data as P);
        frame ||= window.setTimeout(flush, 16);
      },
      // What a view shows stays, as a job that is gone; without anything to show, the sentence is shown.
      refused: (error) => setState((old) => (old.data !== null && error.code === 404 ? old : { ...old, error: error.message })),
      connection: (connection) => setState((old) => (same(old.connection, connection) ? old : { ...old, connection })),
    });
    return () => {
      stop();
      window.clearTimeout(frame);
    };
  }, [stream, past]);
  return state;
}

function same(a: Connection, b: Connection): boolean {
  if (a.state === "cut" && b.state === "cut") return a.retryAt === b.retryAt;
  if (a.state === "stale" && b.state === "stale") return a.reason === b.reason;
  return a.state === b.state;
}

/** A setting of the viewer that this browser keeps. */
export function useSetting(name: string, initial: string): [string, (value: string) => void] {
  const key = `gangline.${name}`;
  const [value, setValue] = useState(() => stored(key) ?? initial);
  const set = useCallback(
    (next: string) => {
      setValue(next);
      try {
        window.localStorage.setItem(key, next);
      } catch {
        // Storage is switched off: the setting lasts as long as the page.
      }
    },
    [key],
  );
  return [value, set];
}

function stored(key: string): string | null {
  try {
    return window.localStorage.getItem(key);
  } catch {
    return null;
  }
}
