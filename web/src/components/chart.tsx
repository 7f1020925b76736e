/** A plot by uPlot. Colours come from the page's own styles; lines also differ by their dashes. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { CurveMark } from "../api";
import { useWidth } from "../hooks";
import { type Series, joined } from "../model/curves";
import { numberText } from "../model/numbers";
import type { Range } from "../model/time";

export const DASHES: number[][] = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 4]];

const POWERS = Array.from({ length: 60 }, (_, power) => 2 ** power);

interface Properties {
  series: Series[];
  marks: CurveMark[];
  log: boolean;
  /** Whether x is a moment in seconds or a number of steps. */
  time: boolean;
  height: number;
  /** Plots of one name share their cursor. */
  group: string;
  /** The part of time that is looked at, in milliseconds. */
  range: Range | null;
  label: string;
  format?: (value: number) => string;
  /** Whether values are bytes: the axis has steps of powers of two. */
  bytes?: boolean;
  setRange?: (range: Range | null) => void;
  theme: string;
}

/** A colour of the page's styles, as the canvas understands it. */
function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Vertical lines where something happened, with a small flag on top. */
function drawMarks(plot: uPlot, marks: CurveMark[]): void {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("--mark-line");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = plot.valToPos(Number(mark.x), "x", true);
    if (x < left || x > left + width) continue;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    const size = 5 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x - size, top);
    ctx.lineTo(x + size, top);
    ctx.lineTo(x, top + 1.4 * size);
    ctx.fill();
  }
  ctx.restore();
}

export function Chart(properties: Properties) {
  const { series, marks, log, time, height, group, range, label, format = numberText, bytes = false, setRange, theme } = properties;
  const [element, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(marks);
  latest.current = marks;
  const select = useRef(setRange);
  select.current = setRange;
  const shape = JSON.stringify([series.map((one) => [one.label, one.faint, one.points.length < 3]), log, time, theme, height, group]);

  useEffect(() => {
    const node = element.current;
    if (!node || width === 0) return undefined;
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: colour("--ink-faint"), font, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 } };
    const made = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        padding: [10, 8, 0, 0],
        cursor: { sync: { key: group }, drag: { x: Boolean(setRange) && time, y: false, setScale: false }, points: { size: 6 } },
        scales: { x: { time }, y: log ? { distr: 3 } : { range: (_, low, high) => spread(low, high) } },
        axes: [
          { ...axis, size: 28, ...(time ? { values: clockValues } : { values: (_: uPlot, splits: number[]) => splits.map((value) => numberText(value)) }) },
          { ...axis, size: 58, ...(bytes ? { incrs: POWERS } : {}), values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))) },
        ],
        series: [
          {},
          ...series.map((one, index) => ({
            label: one.label,
            stroke: colour(`--series-${(index % 6) + 1}`),
            width: one.faint ? 1 : 1.8,
            alpha: one.faint ? 0.5 : 1,
            dash: (DASHES[index % DASHES.length] ?? []).map((length) => length * devicePixelRatio),
            points: { show: one.points.length < 3 },
            spanGaps: true,
          })),
        ],
        hooks: {
          draw: [(own) => drawMarks(own, latest.current)],
          setSelect: [
            (own) => {
              if (own.select.width > 3) {
                const from = own.posToVal(own.select.left, "x") * 1000;
                const to = own.posToVal(own.select.left + own.select.width, "x") * 1000;
                select.current?.({ from, to });
              }
              own.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      joined(series) as uPlot.AlignedData,
      node,
    );
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [shape, width === 0]);

  useEffect(() => {
    plot.current?.setData(joined(series) as uPlot.AlignedData, true);
    zoom(plot.current, time ? range : null);
  }, [series]);
  useEffect(() => plot.current?.setSize({ width, height }), [width, height]);
  useEffect(() => zoom(plot.current, time ? range : null), [range?.from, range?.to, shape, width === 0]);

  return <div ref={element} class="chart" role="img" aria-label={label} />;
}

function zoom(plot: uPlot | null, range: Range | null): void {
  if (!plot) return;
  const xs = plot.data[0];
  const first = xs[0];
  const last = xs[xs.length - 1];
  if (range) plot.setScale("x", { min: range.from / 1000, max: range.to / 1000 });
  else if (first !== undefined && last !== undefined) plot.setScale("x", first === last ? { min: first - 1, max: last + 1 } : { min: first, max: last });
}

/** A little air above and below; a flat line lies in the middle. */
function spread(low: number, high: number): [number, number] {
  if (low === high) return low === 0 ? [-1, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const air = (high - low) * 0.06;
  return [low >= 0 && low < air * 4 ? 0 : low - air, high + air];
}

const pad = (value: number): string => String(value).padStart(2, "0");

function clockValues(_: uPlot, splits: number[], __: number, ___: number, step: number): string[] {
  return splits.map((value) => {
    const date = new Date(value * 1000);
    const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
    if (step >= 86400) return `${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
    return step < 60 ? `${clock}:${pad(date.getSeconds())}` : clock;
  });
}
