/** Logs of the team, merged by time, of the span that is brushed. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { LogLine, LogLines, LogPage } from "../api";
import { jobPath } from "../api";
import { Icon } from "../components/icons";
import { Choice, Empty, Failure, Field, Loading, Notice } from "../components/ui";
import { VirtualList } from "../components/virtual_list";
import { useMedia, useSetting } from "../hooks";
import { HIDDEN_FOR } from "../live";
import { get, sentence, withQuery } from "../http";
import { t } from "../i18n";
import { appended, folded, pieces, plain, tone } from "../model/logs";
import { type Range, clockText, moment } from "../model/time";

const PAGE = 2000;
const ROW = 20;
const TONES = 6;
/** The most lines that a page which follows a job keeps. */
const MOST_LINES = 50_000;
/** Before a stream that ended is begun again, in milliseconds: the first time, and at most. */
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;

interface Properties {
  id: string;
  uid: string | null;
  at: string | null;
  brush: Range | null;
  live: boolean;
  replicas: string[];
  query: URLSearchParams;
  set: (change: Record<string, string | null>) => void;
  now: number;
  /** How often the team was started again: its logs begin anew. */
  restarts: number;
}

interface Loaded {
  lines: LogLine[];
  cursor: string | null;
  more: boolean;
  notRead: string[];
  /** What continues after these lines; empty if nothing does. */
  follow: string;
}

const NOTHING: Loaded = { lines: [], cursor: null, more: false, notRead: [], follow: "" };

function useDelayed<T>(value: T, wait: number): T {
  const [shown, setShown] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setShown(value), wait);
    return () => window.clearTimeout(timer);
  }, [JSON.stringify(value)]);
  return shown;
}

export function Logs({ id, uid, at, brush, live, replicas, query, set, now, restarts }: Properties) {
  const [fold, setFold] = useSetting("fold", "yes");
  const phone = useMedia("(max-width: 820px)");
  const [wrap, setWrap] = useSetting("wrap", phone ? "yes" : "no");
  const replica = query.get("replica") ?? "";
  const search = query.get("search") ?? "";
  const [atEnd, setAtEnd] = useState(true);
  const asked = useDelayed({ replica, search, from: brush && new Date(brush.from).toISOString(), to: brush && new Date(brush.to).toISOString(), fold: fold === "yes" ? "true" : "false", uid, at, limit: PAGE }, 200);
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState<string | null>(null);
  const turn = useRef(0);
  const busy = useRef(false);
  const path = `${jobPath(id)}/logs`;
  const key = JSON.stringify([path, asked, restarts]);

  const load = useCallback(
    async (before: Loaded, mine: number): Promise<void> => {
      if (busy.current) return;
      busy.current = true;
      try {
        const page = await get<LogPage>(path, { ...asked, cursor: before.cursor });
        if (turn.current !== mine) return;
        const next = { lines: [...before.lines, ...page.lines], cursor: page.cursor ?? before.cursor, more: page.more ?? false, notRead: (page.notRead ?? []).map((one) => (typeof one === "string" ? one : `${one.replica ?? ""} ${one.message ?? ""}`.trim())), follow: page.follow ?? "" };
        setLoaded(fold === "yes" ? { ...next, lines: folded(next.lines) } : next);
        setError(null);
      } catch (problem) {
        if (turn.current === mine) setError(sentence(problem));
      } finally {
        if (turn.current === mine) busy.current = false;
      }
    },
    [key],
  );

  useEffect(() => {
    turn.current += 1;
    busy.current = false;
    void load(NOTHING, turn.current);
    return () => {
      turn.current += 1;
    };
  }, [load]);

  // While the job runs, the rest of its lines is read, and then followed.
  const following = live && brush === null && at === null;
  const tries = useRef(0);
  useEffect(() => {
    if (following && loaded?.more && atEnd) void load(loaded, turn.current);
  }, [following, loaded, atEnd, load]);
  const follow = following ? (loaded?.follow ?? "") : "";
  useEffect(() => {
    if (!follow) return undefined;
    const mine = turn.current;
    let timer = 0;
    const source = new EventSource(withQuery(`${path}/stream`, { follow, replica: asked.replica, search: asked.search }));
    source.addEventListener("open", () => {
      tries.current = 0;
    });
    source.addEventListener("lines", (event) => {
      const next = JSON.parse((event as MessageEvent<string>).data) as LogLines;
      setLoaded((old) => {
        if (!old || turn.current !== mine) return old;
        return { ...old, lines: appended(old.lines, next.lines, fold === "yes", MOST_LINES), notRead: [...new Set([...old.notRead, ...next.notRead])] };
      });
    });
    // Cut: what has come meanwhile is read again, from the beginning, and then followed.
    source.onerror = () => {
      source.close();
      const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** tries.current);
      tries.current += 1;
      timer = window.setTimeout(() => void load(NOTHING, turn.current), wait);
    };
    // Nobody looks: the server need not send.
    let hidden = 0;
    const visibility = (): void => {
      window.clearTimeout(hidden);
      if (document.hidden) hidden = window.setTimeout(() => source.close(), HIDDEN_FOR);
      else if (source.readyState === EventSource.CLOSED && !timer) void load(NOTHING, turn.current);
    };
    document.addEventListener("visibilitychange", visibility);
    return () => {
      source.close();
      window.clearTimeout(timer);
      window.clearTimeout(hidden);
      document.removeEventListener("visibilitychange", visibility);
    };
  }, [follow]);

  const nearEnd = useCallback(() => {
    if (loaded?.more) void load(loaded, turn.current);
  }, [loaded, load]);

  const lines = loaded?.lines ?? [];
  return (
    <div class="logs">
      <div class="toolbar tight">
        <div class="search">
          <Icon name="search" />
          <Field label={t("logs.search")} hidden>
            <input id="log-search" class="input" type="search" placeholder={t("logs.search")} value={search} onInput={(event) => set({ search: event.currentTarget.value || null })} />
          </Field>
          <kbd aria-hidden="true">/</kbd>
        </div>
        <Choice label={t("column.replica")} all={t("logs.allReplicas")} value={replica} values={replicas} choose={(value) => set({ replica: value || null })} />
        <label class="check">
          <input type="checkbox" checked={fold === "yes"} onChange={(event) => setFold(event.currentTarget.checked ? "yes" : "no")} />
          {t("logs.fold")}
        </label>
        <label class="check">
          <input type="checkbox" checked={wrap === "yes"} onChange={(event) => setWrap(event.currentTarget.checked ? "yes" : "no")} />
          {t("logs.wrap")}
        </label>
        {following && (
          <label class="check">
            <input type="checkbox" checked={atEnd} onChange={(event) => setAtEnd(event.currentTarget.checked)} />
            {t("logs.follow")}
          </label>
        )}
        <span class="grow" />
        <a class="button small" href={withQuery(`${path}/download`, { replica: asked.replica, from: asked.from, to: asked.to, uid, at })} download={`${id.split("/").at(-1) ?? "job"}.log`}>
          <Icon name="download" size={14} />
          {t("logs.download")}
        </a>
      </div>
      <Failure message={error} retry={() => void load(loaded ?? NOTHING, turn.current)} />
      {loaded?.notRead.length ? (
        <Notice tone="warning">
          {loaded.notRead.slice(0, 5).map((text) => (
            <p key={text}>{text}</p>
          ))}
        </Notice>
      ) : null}
      {loaded === null && error === null && <Loading />}
      {loaded !== null && lines.length === 0 && error === null && <Empty title={brush ? t("logs.noneInSpan") : search ? t("logs.noMatch") : t("logs.none")} />}
      {lines.length > 0 &&
        (wrap === "yes" ? (
          <div class="log wrapped" tabIndex={0} role="log" aria-live="off" aria-label={t("tab.logs")}>
            {lines.slice(-4000).map((line, index) => (
              <Line key={index} line={line} search={search} now={now} />
            ))}
          </div>
        ) : (
          <VirtualList class="log" count={lines.length} rowHeight={ROW} scroller="self" role="log" label={t("tab.logs")} stickToEnd={following && atEnd} nearEnd={nearEnd} render={(index) => lines[index] && <Line key={index} line={lines[index]} search={search} now={now} />} />
        ))}
      {loaded?.more && (
        <button type="button" class="link" onClick={nearEnd}>
          {t("logs.more")}
        </button>
      )}
    </div>
  );
}

function Line({ line, search, now }: { line: LogLine; search: string; now: number }) {
  const text = plain(line.text);
  return (
    <div class="log-line" data-tone={tone(line.replica, TONES)}>
      <time class="log-time">{clockText(moment(line.at), now)}</time>
      <span class="log-replica">
        {line.replica}
        {line.attempt ? <sup>{line.attempt + 1}</sup> : null}
      </span>
      <span class="log-text">
        {search ? pieces(text, search).map((piece, index) => (piece.hit ? <mark key={index}>{piece.text}</mark> : piece.text)) : text}
        {line.repeats && line.repeats > 1 ? <span class="log-repeats">×{line.repeats}</span> : null}
      </span>
    </div>
  );
}
