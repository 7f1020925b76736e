/** The shapes of what happened at one moment. Each kind has its own, so colour is never needed to tell them apart. */

import type { ComponentChildren } from "preact";

const SHAPES: Record<string, ComponentChildren> = {
  restart: <path d="M4.2-2.4A5 5 0 1 0 4.8 1.6M4.9-5.2v3H2" fill="none" />,
  oom: (
    <>
      <rect x="-5.5" y="-5.5" width="11" height="11" rx="2" />
      <path class="mark-ink" d="M-2.6 2.6V-2.4L0 .8 2.6-2.4V2.6" />
    </>
  ),
  eviction: (
    <>
      <path d="M0-6L6 0 0 6-6 0z" />
      <path class="mark-ink" d="M-2.4 0h4.6M.4-2L2.4 0 .4 2" />
    </>
  ),
  "node-lost": (
    <>
      <rect x="-6" y="-4.5" width="12" height="9" rx="1.5" />
      <path class="mark-ink" d="M-2.6-2L2.6 2M2.6-2L-2.6 2" />
    </>
  ),
  failure: <path d="M-4-4L4 4M4-4L-4 4" fill="none" class="mark-thick" />,
  "first-failure": (
    <>
      <path d="M0-8.5L2.3-3 8.3-2.5 3.7 1.5 5.1 7.4 0 4.2-5.1 7.4-3.7 1.5-8.3-2.5-2.3-3z" />
      <path class="mark-ink" d="M0-3V1M0 3v.1" />
    </>
  ),
  operator: (
    <>
      <circle r="5" />
      <circle class="mark-ink" r="1.6" />
    </>
  ),
  scheduler: (
    <>
      <path d="M0-5.8L5.6 4.4H-5.6z" />
      <path class="mark-ink" d="M0-1.4V1.8" />
    </>
  ),
  suspended: <path d="M-2.4-4.5v9M2.4-4.5v9" fill="none" class="mark-thick" />,
  resumed: <path d="M-3.4-5v10L5 0z" />,
  scaled: <path d="M0-6L4-1.6H-4zM0 6L-4 1.6h8z" />,
  checkpoint: <path d="M-3.4 6V-6L5-3-3.4 0" />,
};

export function MarkShape({ kind }: { kind: string }) {
  return SHAPES[kind] ?? SHAPES["operator"];
}

/** A mark beside a text. */
export function MarkIcon({ kind }: { kind: string }) {
  return (
    <svg class="mark-icon" width="20" height="20" viewBox="-10 -10 20 20" aria-hidden="true">
      <g class="mark" data-kind={kind}>
        <MarkShape kind={kind} />
      </g>
    </svg>
  );
}
