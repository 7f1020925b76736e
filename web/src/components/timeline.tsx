/** The team timeline: one row for each replica, time to the right. A part of it can be brushed. */

import { useMemo, useRef, useState } from "preact/hooks";
import type { TeamTimeline } from "../api";
import { useWidth } from "../hooks";
import { t, word } from "../i18n";
import { type Range, clockText, durationText, moment, tickLabel, timeTicks } from "../model/time";
import { AXIS_HEIGHT, BAR_HEIGHT, type DrawnMark, type DrawnSpan, PHASE_HEIGHT, ROW_HEIGHT, around, layoutOf, linkPath, round, rowTop } from "../model/timeline";
import { MarkIcon, MarkShape } from "./marks";

/** A letter for each state, for those who see no colour and no pattern. */
export const STATE_LETTERS: Record<string, string> = {
  waiting: "W",
  starting: "S",
  running: "R",
  "not-ready": "N",
  succeeded: "✓",
  failed: "✕",
  stopped: "■",
  lost: "?",
};

const STATES = Object.keys(STATE_LETTERS);

/** Patterns over the colour of a state. */
function Patterns() {
  return (
    <defs>
      <pattern id="pattern-waiting" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path class="pattern-line" d="M0 0V6" />
      </pattern>
      <pattern id="pattern-starting" width="5" height="5" patternUnits="userSpaceOnUse">
        <circle class="pattern-dot" cx="2.5" cy="2.5" r="0.9" />
      </pattern>
      <pattern id="pattern-not-ready" width="5" height="5" patternUnits="userSpaceOnUse">
        <path class="pattern-line" d="M0 2.5H5" />
      </pattern>
      <pattern id="pattern-failed" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path class="pattern-line" d="M0 0V6M0 0H6" />
      </pattern>
      <pattern id="pattern-stopped" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
        <path class="pattern-line" d="M0 0V8" />
      </pattern>
      <pattern id="pattern-lost" width="7" height="16" patternUnits="userSpaceOnUse">
        <path class="pattern-line" d="M3.5 0V16" stroke-dasharray="2 2" />
      </pattern>
    </defs>
  );
}

const PATTERNED = new Set(["waiting", "starting", "not-ready", "failed", "stopped", "lost"]);

function SpanBar({ drawn, dim }: { drawn: DrawnSpan; dim: boolean }) {
  const { span, x, y, width } = drawn;
  const letter = STATE_LETTERS[span.state];
  return (
    <g class={dim ? "span dim" : "span"} data-state={span.state}>
      <rect class="span-fill" x={round(x)} y={y} width={round(width)} height={BAR_HEIGHT} rx={Math.min(3, width / 2)} />
      {PATTERNED.has(span.state) && width > 5 && (
        <rect class="span-pattern" x={round(x)} y={y} width={round(width)} height={BAR_HEIGHT} rx={Math.min(3, width / 2)} fill={`url(#pattern-${span.state})`} />
      )}
      {letter && width > 18 && (
        <text class="span-letter" x={round(x + 6)} y={y + BAR_HEIGHT - 4.5}>
          {letter}
        </text>
      )}
    </g>
  );
}

interface Hover {
  x: number;
  y: number;
  title: string;
  lines: string[];
}

interface Properties {
  timeline: TeamTimeline;
  whole: Range;
  now: number;
  brush: Range | null;
  setBrush: (range: Range | null) => void;
}

export function Timeline({ timeline, whole, now, brush, setBrush }: Properties) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [zoomed, setZoomed] = useState<Range | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const drag = useRef<{ from: number; moved: boolean } | null>(null);
  const [dragged, setDragged] = useState<Range | null>(null);
  const view = zoomed ?? whole;
  const gutter = width < 560 ? 76 : width > 2000 ? 140 : 108;
  const plotWidth = Math.max(40, width - gutter - 12);
  const layout = useMemo(() => layoutOf(timeline, view, gutter, plotWidth), [timeline, view.from, view.to, gutter, plotWidth]);
  const { scale } = layout;
  const ticks = timeTicks(view, Math.max(2, Math.floor(plotWidth / 90)));
  const selection = dragged ?? brush;

  const local = (event: PointerEvent): { x: number; y: number } => {
    const box = (event.currentTarget as SVGSVGElement).getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const markAt = (x: number, y: number): DrawnMark | undefined => layout.marks.findLast((mark) => Math.hypot(mark.x - x, mark.y - y) < 11);
  const spanAt = (x: number, y: number): DrawnSpan | undefined =>
    [...layout.spans, ...layout.phases].find((span) => {
      const height = span.row === -1 ? PHASE_HEIGHT + 6 : BAR_HEIGHT + 6;
      return x >= span.x - 1 && x <= span.x + span.width + 1 && y >= span.y - 3 && y <= span.y - 3 + height;
    });

  const describe = (x: number, y: number): Hover | null => {
    const mark = markAt(x, y);
    if (mark) {
      const who = mark.mark.row ?? t("timeline.job");
      return { x, y, title: `${word("mark", mark.mark.kind)} · ${who}`, lines: [clockText(mark.at, now, true), mark.mark.text, mark.consequence ? t("timeline.consequence") : ""].filter(Boolean) };
    }
    const found = spanAt(x, y);
    if (!found) return null;
    const { span } = found;
    const who = found.row === -1 ? t("timeline.job") : (layout.rowNames[found.row] ?? "");
    const state = found.row === -1 ? word("state", span.state) : word("span", span.state);
    const times = `${clockText(found.from, now)} – ${found.open ? t("timeline.now") : clockText(found.to, now)} · ${durationText(found.to - found.from)}`;
    const more = [span.node ? t("timeline.onNode", { node: span.node }) : "", span.attempt ? t("timeline.attempt", { n: span.attempt + 1 }) : ""].filter(Boolean).join(" · ");
    return { x, y, title: `${who} · ${state}`, lines: [times, more, span.text ?? ""].filter(Boolean) };
  };

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const { x } = local(event);
    if (x < gutter - 4) return;
    drag.current = { from: x, moved: false };
    (event.currentTarget as SVGSVGElement).setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent): void => {
    const { x, y } = local(event);
    const start = drag.current;
    if (!start) {
      setHover(describe(x, y));
      return;
    }
    if (Math.abs(x - start.from) > 4) start.moved = true;
    if (start.moved) {
      setHover(null);
      setDragged({ from: scale.at(Math.min(x, start.from)), to: scale.at(Math.max(x, start.from)) });
    }
  };
  const up = (event: PointerEvent): void => {
    const start = drag.current;
    drag.current = null;
    setDragged(null);
    if (!start) return;
    const { x, y } = local(event);
    if (start.moved) {
      const range = { from: scale.at(Math.min(x, start.from)), to: scale.at(Math.max(x, start.from)) };
      if (range.to > range.from) setBrush(range);
      return;
    }
    const mark = markAt(x, y);
    const span = spanAt(x, y);
    if (mark) setBrush(around(mark.at, whole));
    else if (span) setBrush({ from: span.from, to: Math.max(span.to, span.from + 1) });
    else setBrush(null);
  };
  const cancel = (): void => {
    drag.current = null;
    setDragged(null);
    setHover(null);
  };

  const keys = (event: KeyboardEvent): void => {
    const length = view.to - view.from;
    const own = brush ?? { from: view.from, to: view.from + length / 10 };
    const step = (event.key === "ArrowRight" ? 1 : -1) * (length / 50);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const to = Math.min(whole.to, own.to + step);
      const from = event.shiftKey ? own.from : Math.max(whole.from, own.from + step);
      if (to - from > length / 200) setBrush({ from, to });
    } else if (event.key === "Home") setBrush({ from: whole.from, to: whole.from + (own.to - own.from) });
    else if (event.key === "End") setBrush({ from: whole.to - (own.to - own.from), to: whole.to });
    else if (event.key === "Escape" && (brush || zoomed)) {
      if (zoomed) setZoomed(null);
      else setBrush(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const failedRows = new Set(timeline.rows.filter((row) => row.spans.at(-1)?.state === "failed").map((row) => row.name));
  return (
    <div class="timeline">
      <div class="timeline-scroll" ref={element} tabIndex={0} role="group" aria-label={t("timeline.label", { n: timeline.rows.length })} aria-describedby="timeline-keys" onKeyDown={keys}>
        {width > 0 && (
          <svg class="timeline-picture" width={width} height={layout.height} onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={cancel} onPointerLeave={() => setHover(null)} aria-hidden="true">
            <Patterns />
            <g class="timeline-axis">
              {ticks.map(({ at, step }) => (
                <g key={at}>
                  <path class="grid-line" d={`M${round(scale.x(at))},${AXIS_HEIGHT - 4}V${layout.height}`} />
                  <text class="tick" x={round(scale.x(at))} y={12} text-anchor="middle">
                    {tickLabel(at, step)}
                  </text>
                </g>
              ))}
            </g>
            {layout.phases.map((phase) => (
              <rect key={`${phase.span.state}${phase.from}`} class="phase" data-state={phase.span.state} x={round(phase.x)} y={phase.y} width={round(phase.width)} height={PHASE_HEIGHT} rx={2} />
            ))}
            <text class="row-name faint" x={gutter - 10} y={AXIS_HEIGHT + PHASE_HEIGHT} text-anchor="end">
              {t("timeline.job")}
            </text>
            {layout.rowNames.map((name, index) => (
              <text key={name} class={failedRows.has(name) ? "row-name failed" : "row-name"} x={gutter - 10} y={rowTop(index) + ROW_HEIGHT / 2 + 4} text-anchor="end">
                {shortened(name, gutter < 100 ? 10 : 15)}
              </text>
            ))}
            {layout.spans.map((span) => (
              <SpanBar key={`${span.row}/${span.from}/${span.span.state}`} drawn={span} dim={selection !== null && (span.to < selection.from || span.from > selection.to)} />
            ))}
            {selection && (
              <g class="brush">
                <rect x={round(scale.clampedX(selection.from))} y={AXIS_HEIGHT - 4} width={Math.max(1, round(scale.clampedX(selection.to) - scale.clampedX(selection.from)))} height={layout.height - AXIS_HEIGHT + 4} />
                <path d={`M${round(scale.clampedX(selection.from))},${AXIS_HEIGHT - 4}V${layout.height}M${round(scale.clampedX(selection.to))},${AXIS_HEIGHT - 4}V${layout.height}`} />
              </g>
            )}
            {layout.links.map((link, index) => (
              <path key={index} class="failure-link" d={linkPath(link)} />
            ))}
            {layout.marks.map((mark) => (
              <g key={mark.index} class={mark.consequence ? "mark consequence" : "mark"} data-kind={mark.mark.kind} transform={`translate(${round(mark.x)},${round(mark.y)})`}>
                <MarkShape kind={mark.mark.kind} />
              </g>
            ))}
          </svg>
        )}
        {hover && (
          <div class="tooltip" style={{ insetInlineStart: `${Math.max(8, Math.min(hover.x + 14, width - 270))}px`, insetBlockStart: `${hover.y + 18}px` }}>
            <strong>{hover.title}</strong>
            {hover.lines.map((line, index) => (
              <span key={index}>{line}</span>
            ))}
          </div>
        )}
      </div>
      <p id="timeline-keys" class="visually-hidden">
        {t("timeline.keys")}
      </p>
      <div class="timeline-foot">
        <Legend present={new Set(timeline.rows.flatMap((row) => row.spans.map((span) => span.state)))} />
        {(brush || zoomed) && (
          <span class="timeline-buttons">
            {brush && (
              <button type="button" class="button small" onClick={() => setZoomed(brush)}>
                {t("timeline.zoom")}
              </button>
            )}
            {zoomed && (
              <button type="button" class="button small" onClick={() => setZoomed(null)}>
                {t("timeline.whole")}
              </button>
            )}
          </span>
        )}
      </div>
    </div>
  );
}

function shortened(name: string, length: number): string {
  return name.length <= length ? name : `${name.slice(0, length - 4)}…${name.slice(-3)}`;
}

function Legend({ present }: { present: Set<string> }) {
  return (
    <ul class="legend" aria-label={t("timeline.legend")}>
      {STATES.filter((state) => present.has(state)).map((state) => (
        <li key={state}>
          <svg width="20" height="14" aria-hidden="true">
            <g class="span" data-state={state}>
              <rect class="span-fill" width="20" height="14" rx="3" />
              {PATTERNED.has(state) && <rect class="span-pattern" width="20" height="14" rx="3" fill={`url(#pattern-${state})`} />}
              <text class="span-letter" x="10" y="11" text-anchor="middle">
                {STATE_LETTERS[state]}
              </text>
            </g>
          </svg>
          {word("span", state)}
        </li>
      ))}
    </ul>
  );
}

/** Everything that happened, in order; choosing one brushes the time around it. */
export function MarkList({ timeline, whole, now, brush, setBrush }: Properties) {
  const consequences = new Set(timeline.links.flatMap((link) => link.consequenceMarks));
  if (!timeline.marks.length) return null;
  return (
    <ol class="mark-list" aria-label={t("timeline.marks")}>
      {timeline.marks.map((mark, index) => {
        const at = moment(mark.at) ?? whole.from;
        const chosen = brush !== null && at >= brush.from && at <= brush.to;
        return (
          <li key={index}>
            <button type="button" class={consequences.has(index) ? "mark-item consequence" : "mark-item"} aria-pressed={chosen} onClick={() => setBrush(around(at, whole))}>
              <MarkIcon kind={mark.kind} />
              <time class="mono faint">{clockText(at, now)}</time>
              <span class="mark-who">{mark.row ?? t("timeline.job")}</span>
              <span class="mark-text">
                <strong>{word("mark", mark.kind)}</strong>
                {mark.text ? ` ${mark.text}` : ""}
                {consequences.has(index) && <em> · {t("timeline.consequence")}</em>}
              </span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

/** The same facts as a table, for readers of the screen and for copying. */
export function TimelineTable({ timeline, now }: { timeline: TeamTimeline; now: number }) {
  return (
    <details class="details">
      <summary>{t("timeline.table")}</summary>
      <div class="table-scroll" tabIndex={0} role="group" aria-label={t("timeline.table")}>
        <table class="table">
          <thead>
            <tr>
              {(["replica", "state", "from", "to", "duration", "attempt", "node", "note"] as const).map((column) => (
                <th key={column} scope="col">
                  {t(`column.${column}`)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {timeline.rows.flatMap((row) =>
              row.spans.map((span, index) => {
                const from = moment(span.start) ?? now;
                const to = moment(span.end);
                return (
                  <tr key={`${row.name}${index}`}>
                    <th scope="row">{row.name}</th>
                    <td>{word("span", span.state)}</td>
                    <td class="mono">{clockText(from, now)}</td>
                    <td class="mono">{to === null ? t("timeline.now") : clockText(to, now)}</td>
                    <td class="mono">{durationText((to ?? now) - from)}</td>
                    <td class="mono">{(span.attempt ?? 0) + 1}</td>
                    <td>{span.node}</td>
                    <td>{span.text}</td>
                  </tr>
                );
              }),
            )}
          </tbody>
        </table>
      </div>
    </details>
  );
}
