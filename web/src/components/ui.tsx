/** Small parts of every view. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { JobRow, Progress, Refusal } from "../api";
import { type Key, t, word } from "../i18n";
import { refusalSentences } from "../model/board";
import { numberText, percentText } from "../model/numbers";
import { durationText, moment } from "../model/time";
import { Icon } from "./icons";

export function StateBadge({ state, text }: { state: string; text?: string | null | undefined }) {
  return (
    <span class="badge" data-state={state}>
      <Icon name={state} size={14} />
      {word("state", state, text || state)}
    </span>
  );
}

export function metricsOf(progress: Progress | null): [string, number][] {
  const metrics = progress?.metrics;
  if (!metrics) return [];
  const pairs: [string, unknown][] = Array.isArray(metrics) ? metrics.map((one) => [one.name, one.value]) : Object.entries(metrics);
  return pairs.map(([name, value]): [string, number] => [name, Number(value)]).filter(([, value]) => !Number.isNaN(value));
}

/** A bar with its words: the words say all that the bar says. */
/** What the time of a job's replicas went into, as a thin bar with the share of work beside it. */
export function GoodputBar({ seconds }: { seconds: Record<string, number> }) {
  const parts = Object.entries(seconds).filter(([, part]) => part > 0);
  const total = parts.reduce((sum, [, part]) => sum + part, 0);
  if (!total) return null;
  const texts = parts.map(([name, part]) => `${t(`goodput.${name}` as Key)} ${percentText(part / total)}`);
  return (
    <span class="progress">
      <span class="progress-track goodput" role="img" aria-label={texts.join(", ")} title={texts.join("\n")}>
        {parts.map(([name, part]) => (
          <span key={name} class={`goodput-part goodput-${name}`} style={{ flexGrow: part }} />
        ))}
      </span>
      <span class="progress-text">{percentText((seconds.working ?? 0) / total)}</span>
    </span>
  );
}

export function ProgressBar({ progress, name, plain = false }: { progress: Progress | null; name: string; plain?: boolean }) {
  const fraction = progress?.fraction ?? (progress?.step != null && progress.total ? progress.step / progress.total : null);
  if (!progress || fraction === null) {
    if (progress?.step != null) return <span class="progress-text">{t("progress.step", { step: numberText(progress.step) })}</span>;
    return <span class="faint">–</span>;
  }
  const share = Math.min(1, Math.max(0, fraction));
  return (
    <span class="progress">
      <span class="progress-track" role="progressbar" aria-label={t("progress.of", { name })} aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100}>
        <span class="progress-fill" style={{ inlineSize: `${share * 100}%` }} />
      </span>
      <span class="progress-text">
        {percentText(share)}
        {!plain && leftText(progress) && <span class="faint"> · {leftText(progress)}</span>}
      </span>
    </span>
  );
}

/** How long a job still needs, if it says so. */
export function leftText(progress: Progress | null): string {
  const seconds = progress?.etaSeconds ?? 0;
  return seconds > 0 ? t("progress.left", { time: durationText(seconds * 1000) }) : "";
}

/** How long ago something began, or how long it took. */
export function ageText(row: JobRow, now: number): string {
  const from = moment(row.createdAt);
  return from === null ? "–" : durationText(now - from);
}

export function runTimeText(row: JobRow, now: number): string {
  const from = moment(row.startedAt ?? null);
  return from === null ? "–" : durationText((moment(row.endedAt ?? null) ?? now) - from);
}

export type Tone = "info" | "warning" | "error" | "good";

export function Notice({ tone, children, live = false }: { tone: Tone; children: ComponentChildren; live?: boolean }) {
  return (
    <div class="notice" data-tone={tone} {...(live ? { role: "status" } : {})}>
      <Icon name={tone === "good" ? "Succeeded" : tone === "info" ? "info" : "warning"} />
      <div class="notice-body">{children}</div>
    </div>
  );
}

export function Failure({ message, retry }: { message: string | null; retry?: (() => void) | undefined }) {
  if (message === null) return null;
  return (
    <Notice tone="error" live>
      {message || t("error.unreachable")}
      {retry && (
        <button type="button" class="link" onClick={retry}>
          {t("error.retry")}
        </button>
      )}
    </Notice>
  );
}

/** What the viewer may not see, one sentence each: never a blank. */
export function Refusals({ refused }: { refused: Refusal[] | undefined | null }) {
  if (!refused?.length) return null;
  const sentences = refusalSentences(refused);
  return (
    <Notice tone="warning">
      <p class="notice-title">{t("refused.title")}</p>
      <ul class="plain">
        {sentences.slice(0, 8).map((one) => (
          <li key={one}>{one}</li>
        ))}
        {sentences.length > 8 && <li>{t("more", { n: sentences.length - 8 })}</li>}
      </ul>
    </Notice>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Loading() {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setShown(true), 150);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <div class="loading" role="status">
      {shown ? t("loading") : ""}
    </div>
  );
}

/** Copies a text. Where the clipboard is closed to pages, the text is selected for the viewer's own copy. */
export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    setCopied(true);
    window.setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="button small" onClick={() => void copy()}>
      <Icon name={copied ? "Succeeded" : "copy"} size={14} />
      <span aria-live="polite">{copied ? t("copied") : (label ?? t("copy"))}</span>
    </button>
  );
}

/** A dialog of the browser's own, which keeps the focus inside. It is given back to where it was. */
export function Dialog({ title, close, children, wide = false }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby="dialog-title"
      onClose={close}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => event.target === element.current && close()}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id="dialog-title">{title}</h2>
          <button type="button" class="icon-button" aria-label={t("close")} onClick={close}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export interface Tab {
  id: string;
  label: string;
  count?: number | undefined;
}

export function Tabs({ tabs, selected, select, label, name }: { tabs: Tab[]; selected: string; select: (id: string) => void; label: string; name: string }) {
  const move = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === selected);
    const next = tabs[(at + by + tabs.length) % tabs.length];
    if (!next) return;
    select(next.id);
    document.getElementById(`${name}-tab-${next.id}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          id={`${name}-tab-${tab.id}`}
          type="button"
          role="tab"
          class="tab"
          aria-selected={tab.id === selected}
          aria-controls={`${name}-panel`}
          tabIndex={tab.id === selected ? 0 : -1}
          onClick={() => select(tab.id)}
        >
          {tab.label}
          {tab.count ? <span class="tab-count">{tab.count}</span> : null}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ name, selected, children }: { name: string; selected: string; children: ComponentChildren }) {
  return (
    <div id={`${name}-panel`} role="tabpanel" aria-labelledby={`${name}-tab-${selected}`} class="tab-panel">
      {children}
    </div>
  );
}

export function Field({ label, children, hidden = false }: { label: string; children: ComponentChildren; hidden?: boolean }) {
  return (
    <label class="field">
      <span class={hidden ? "visually-hidden" : "field-label"}>{label}</span>
      {children}
    </label>
  );
}

export function Choice({ label, value, values, all, choose }: { label: string; value: string; values: (string | [string, string])[]; all: string; choose: (value: string) => void }) {
  const pairs = values.map((one): [string, string] => (typeof one === "string" ? [one, one] : one));
  const listed = !value || pairs.some(([name]) => name === value) ? pairs : [...pairs, [value, value] as [string, string]];
  return (
    <select class="select" aria-label={label} value={value} data-set={value ? "yes" : "no"} onChange={(event) => choose(event.currentTarget.value)}>
      <option value="">{all}</option>
      {listed.map(([name, text]) => (
        <option key={name} value={name}>
          {text}
        </option>
      ))}
    </select>
  );
}

export function Segments<T extends string>({ label, value, options, choose }: { label: string; value: T; options: { id: T; label: string; icon?: string }[]; choose: (id: T) => void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((option) => (
        <button key={option.id} type="button" class="segment" aria-pressed={option.id === value} onClick={() => choose(option.id)}>
          {option.icon && <Icon name={option.icon} size={14} />}
          {option.label}
        </button>
      ))}
    </div>
  );
}
