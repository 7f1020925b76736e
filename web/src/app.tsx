/** The page: header, navigation, the view of the address, help. */

import { useCallback, useEffect, useState } from "preact/hooks";
import type { Session } from "./api";
import { Help } from "./components/help";
import { Icon } from "./components/icons";
import { Failure, Field, Loading, Notice } from "./components/ui";
import { type Viewer, ViewerContext } from "./context";
import { go, useMedia, useNow, useRoute, useSetting } from "./hooks";
import { ApiError, get, onUnauthorized, sentence } from "./http";
import { type Language, preferred, setLanguage, t } from "./i18n";
import type { Connection } from "./live";
import { address } from "./model/route";
import { clockText, durationText, moment } from "./model/time";
import { enableShortcuts, useShortcuts } from "./shortcuts";
import { Board } from "./views/board";
import { Cluster } from "./views/cluster";
import { Job } from "./views/job";
import { Login } from "./views/login";
import { Submit } from "./views/submit";
import { Sweep, Sweeps } from "./views/sweeps";

const NAVIGATION = [
  { path: "", label: "nav.board", icon: "board" },
  { path: "cluster", label: "nav.cluster", icon: "cluster" },
  { path: "sweeps", label: "nav.sweeps", icon: "sweeps" },
  { path: "submit", label: "nav.submit", icon: "submit" },
] as const;

/** Views that follow what happens. */
const STREAMED = new Set(["", "board", "job", "cluster"]);

const THEMES = ["system", "light", "dark"] as const;

export function App() {
  const [language, setLanguageSetting] = useSetting("language", preferred(navigator.languages));
  setLanguage(language === "zh" ? "zh" : "en");
  const [theme, setTheme] = useSetting("theme", "system");
  const [keysOn, setKeysOn] = useSetting("keys", "yes");
  const dark = useMedia("(prefers-color-scheme: dark)");
  const [help, setHelp] = useState(false);
  const [travel, setTravel] = useState(false);
  const [connection, setConnection] = useState<Connection>({ state: "connecting" });
  const { session, problem, out, reload } = useSession();
  const { path, query } = useRoute();
  const at = query.get("at");

  const root = document.documentElement;
  root.lang = language === "zh" ? "zh-CN" : "en";
  if (theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
  useEffect(() => enableShortcuts(keysOn === "yes"), [keysOn]);
  const pageName = path[0] === "job" ? path[3] : path[0] === "sweeps" && path[1] ? path[1] : t(NAVIGATION.find((one) => one.path === (path[0] ?? ""))?.label ?? "nav.board");
  useEffect(() => {
    document.title = `${pageName ?? ""} · gangline`;
  }, [pageName]);

  const nextTheme = (): void => setTheme(THEMES[(THEMES.indexOf(theme as (typeof THEMES)[number]) + 1) % THEMES.length] ?? "system");
  const setAt = (moment: string | null): void => {
    const next = new URLSearchParams(query);
    if (moment) next.set("at", moment);
    else next.delete("at");
    go(address(path, next));
  };
  const report = useCallback((next: Connection) => setConnection(next), []);
  const goTo = (target: string) => (): void => go(address(target ? [target] : [], at ? { at } : {}));
  useShortcuts([
    { keys: "?", label: "keys.help", run: () => setHelp(true) },
    { keys: "g b", label: "nav.board", run: goTo("") },
    { keys: "g c", label: "nav.cluster", run: goTo("cluster") },
    { keys: "g s", label: "nav.sweeps", run: goTo("sweeps") },
    { keys: "g n", label: "nav.submit", run: goTo("submit") },
    { keys: "t", label: "theme.switch", run: nextTheme },
  ]);

  if (out) return <Login done={reload} hint={out.message} login={out.login} />;
  if (!session) {
    return (
      <main id="main" class="page-main" tabIndex={-1}>
        <h1 class="visually-hidden">gangline</h1>
        <Failure message={problem} retry={reload} />
        {problem === null && <Loading />}
      </main>
    );
  }

  const viewer: Viewer = { session, at, setAt, language: language as Language, theme: `${theme}/${dark ? "dark" : "light"}`, report };
  return (
    <ViewerContext.Provider value={viewer}>
      <a
        class="skip-link"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        {t("skip")}
      </a>
      <header class="page-head">
        <a class="brand" href={address([])}>
          <img src="./icon.svg" alt="" width="22" height="22" />
          gangline
        </a>
        <nav class="page-nav" aria-label={t("nav")}>
          {NAVIGATION.filter((one) => one.path !== "submit" || session.tools?.includes("submit") !== false).map((one) => (
            <a key={one.path} href={address(one.path ? [one.path] : [], at ? { at } : {})} aria-current={(path[0] === "job" ? "" : (path[0] ?? "")) === one.path ? "page" : undefined}>
              <Icon name={one.icon} />
              <span>{t(one.label)}</span>
            </a>
          ))}
        </nav>
        <span class="grow" />
        {(STREAMED.has(path[0] ?? "") || at !== null) && <Live connection={connection} at={at} />}
        <span class="user" title={session.version}>
          {session.user}
        </span>
        {session.history && (
          <button type="button" class="icon-button" aria-pressed={travel || at !== null} aria-label={t("travel.open")} title={t("travel.open")} onClick={() => setTravel(!travel)}>
            <Icon name="clock" />
          </button>
        )}
        <button type="button" class="icon-button text" lang={language === "zh" ? "en" : "zh-CN"} onClick={() => setLanguageSetting(language === "zh" ? "en" : "zh")} aria-label={t("language.switch")}>
          {language === "zh" ? "EN" : "中文"}
        </button>
        <button type="button" class="icon-button" onClick={nextTheme} aria-label={`${t("theme.switch")}: ${t(`theme.${theme as (typeof THEMES)[number]}`)}`} title={t(`theme.${theme as (typeof THEMES)[number]}`)}>
          <Icon name={theme} />
        </button>
        <button type="button" class="icon-button" onClick={() => setHelp(true)} aria-label={t("help.title")}>
          <Icon name="help" />
        </button>
      </header>
      <main id="main" class="page-main" tabIndex={-1}>
        {session.history && (travel || at !== null) && (
          <TimeTravel
            at={at}
            setAt={(next) => {
              if (next === null) setTravel(false);
              setAt(next);
            }}
          />
        )}
        {STREAMED.has(path[0] ?? "") && <OutOfDate connection={connection} />}
        <View path={path} query={query} />
      </main>
      {help && <Help close={() => setHelp(false)} enabled={keysOn === "yes"} enable={(on) => setKeysOn(on ? "yes" : "no")} />}
    </ViewerContext.Provider>
  );
}

function View({ path, query }: { path: string[]; query: URLSearchParams }) {
  const [view, ...rest] = path;
  const key = path.join("/");
  useEffect(() => window.scrollTo(0, 0), [key]);
  if (view === undefined || view === "board") return <Board query={query} />;
  if (view === "job" && rest.length === 3) return <Job key={`${key}?${query.get("uid") ?? ""}`} id={rest.join("/")} query={query} />;
  if (view === "cluster") return <Cluster query={query} />;
  if (view === "sweeps" && rest[0]) return <Sweep key={key} name={rest[0]} />;
  if (view === "sweeps") return <Sweeps />;
  if (view === "submit") return <Submit />;
  return (
    <div class="view">
      <h1>{t("notFound")}</h1>
      <p>
        <a href={address([])}>{t("nav.board")}</a>
      </p>
    </div>
  );
}

/** The viewer's session; `out` says why there is none. */
function useSession(): { session: Session | null; problem: string | null; out: ApiError | null; reload: () => void } {
  const [session, setSession] = useState<Session | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [out, setOut] = useState<ApiError | null>(null);
  const load = useCallback(() => {
    setProblem(null);
    get<Session>("api/session").then(
      (found) => {
        setOut(null);
        setSession(found);
      },
      (error: unknown) => {
        if (!(error instanceof ApiError && error.code === 401)) setProblem(sentence(error));
      },
    );
  }, []);
  useEffect(() => {
    onUnauthorized((error) => setOut(error));
    load();
  }, []);
  return { session, problem, out, reload: load };
}

/** Whether what is shown is live. */
function Live({ connection, at }: { connection: Connection; at: string | null }) {
  const state = at !== null ? "past" : connection.state;
  return (
    <span class="live" data-state={state} role="status">
      <span class="live-dot" aria-hidden="true" />
      {t(`live.${state}`)}
    </span>
  );
}

/** Why what is shown may be out of date, and for how long. */
function OutOfDate({ connection }: { connection: Connection }) {
  const since = connection.state === "cut" || connection.state === "stale" ? connection.since : null;
  const now = useNow(since === null ? null : 1000);
  if (since === null || now - since < 0) return null;
  const time = durationText(Math.max(1000, Math.floor((now - since) / 1000) * 1000));
  return (
    <Notice tone="warning" live>
      {connection.state === "stale" ? t("live.staleLong", { time, reason: connection.reason }) : t("live.cutLong", { time })}
    </Notice>
  );
}

/** The record of the past: the whole page at one moment. */
function TimeTravel({ at, setAt }: { at: string | null; setAt: (at: string | null) => void }) {
  const moved = moment(at);
  const now = useNow(null);
  const local = (time: number): string => {
    const date = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
    return date.toISOString().slice(0, 19);
  };
  const back = (milliseconds: number) => (): void => setAt(new Date((moved ?? Date.now()) - milliseconds).toISOString());
  return (
    <div class="travel" data-past={at === null ? "no" : "yes"}>
      <Icon name="clock" />
      {moved !== null && <strong>{t("travel.at", { time: clockText(moved, now) })}</strong>}
      <Field label={t("travel.label")} hidden>
        <input class="input" type="datetime-local" step={1} max={local(Date.now())} value={moved === null ? local(Date.now()) : local(moved)} onChange={(event) => event.currentTarget.value && setAt(new Date(event.currentTarget.value).toISOString())} />
      </Field>
      <button type="button" class="button small" onClick={back(60_000)}>
        −1 m
      </button>
      <button type="button" class="button small" onClick={back(900_000)}>
        −15 m
      </button>
      <button type="button" class="button small" onClick={back(-60_000)} disabled={moved === null}>
        +1 m
      </button>
      <button type="button" class="button small primary" onClick={() => setAt(null)}>
        {t("travel.now")}
      </button>
    </div>
  );
}
