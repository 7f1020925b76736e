/** Small pictures. Every state has a shape of its own, so that none is told apart by colour alone. */

import type { ComponentChildren } from "preact";

function Picture({ children, size = 16 }: { children: ComponentChildren; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      {children}
    </svg>
  );
}

const SHAPES: Record<string, ComponentChildren> = {
  Running: <path d="M5 3.5v9l7.5-4.5z" fill="currentColor" />,
  Pending: (
    <>
      <circle cx="8" cy="8" r="5.6" />
      <path d="M8 5v3.2l2 1.3" />
    </>
  ),
  Created: <circle cx="8" cy="8" r="5.6" stroke-dasharray="2.4 2.4" />,
  Restarting: <path d="M12.8 6A5.3 5.3 0 1 0 13.3 9M13.4 2.8V6h-3.2" />,
  Succeeded: <path d="M3 8.6l3.2 3.2L13 4.8" stroke-width="2" />,
  Failed: <path d="M4 4l8 8M12 4l-8 8" stroke-width="2" />,
  Suspended: <path d="M5.5 4v8M10.5 4v8" stroke-width="2.4" />,
  // An hourglass: time passes, and nothing else does.
  Stalled: <path d="M4 2.5h8M4 13.5h8M5 2.5c0 3.4 6 5 6 8v3M11 2.5c0 3.4-6 5-6 8v3" />,
  Blocked: (
    <>
      <circle cx="8" cy="8" r="5.6" />
      <path d="M4.2 4.2l7.6 7.6" />
    </>
  ),
  board: <path d="M2.5 3.5h11M2.5 8h11M2.5 12.5h7" />,
  cluster: (
    <>
      <rect x="2.5" y="2.5" width="4.5" height="4.5" rx="1" />
      <rect x="9" y="2.5" width="4.5" height="4.5" rx="1" fill="currentColor" />
      <rect x="2.5" y="9" width="4.5" height="4.5" rx="1" fill="currentColor" />
      <rect x="9" y="9" width="4.5" height="4.5" rx="1" />
    </>
  ),
  sweeps: <path d="M3 2.5v11M8 2.5v11M13 2.5v11M3 11l5-6 5 4" />,
  submit: <path d="M8 12.5v-9M4.2 7L8 3.2 11.8 7M3 13.5h10" />,
  help: (
    <>
      <circle cx="8" cy="8" r="6" />
      <path d="M6.3 6.2a1.8 1.8 0 1 1 2.5 1.7c-.6.3-.8.6-.8 1.1M8 11.3v.1" />
    </>
  ),
  light: (
    <>
      <circle cx="8" cy="8" r="2.8" />
      <path d="M8 1.6v1.6M8 12.8v1.6M1.6 8h1.6M12.8 8h1.6M3.5 3.5l1.1 1.1M11.4 11.4l1.1 1.1M12.5 3.5l-1.1 1.1M4.6 11.4l-1.1 1.1" />
    </>
  ),
  dark: <path d="M13 9.6A5.6 5.6 0 0 1 6.4 3a5.6 5.6 0 1 0 6.6 6.6z" />,
  system: <path d="M2.5 3.5h11v7h-11zM6 13.5h4M8 10.5v3" />,
  clock: (
    <>
      <circle cx="8" cy="8" r="6" />
      <path d="M8 4.6V8l2.4 1.6" />
    </>
  ),
  search: (
    <>
      <circle cx="7" cy="7" r="4.2" />
      <path d="M10.2 10.2l3.3 3.3" />
    </>
  ),
  copy: (
    <>
      <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" />
      <path d="M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2" />
    </>
  ),
  download: <path d="M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10" />,
  warning: <path d="M8 2.4l6 11H2zM8 6.4v3.2M8 11.6v.1" />,
  info: (
    <>
      <circle cx="8" cy="8" r="6" />
      <path d="M8 7.4v3.6M8 5v.1" />
    </>
  ),
  close: <path d="M4 4l8 8M12 4l-8 8" />,
  list: <path d="M2.5 4h11M2.5 8h11M2.5 12h11" />,
  lanes: <path d="M2.5 3h4v10h-4zM9.5 3h4v6h-4z" />,
  left: <path d="M9.5 3.5L5 8l4.5 4.5" />,
  trash: <path d="M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9" />,
  scale: <path d="M8 2.5v11M5 5l3-2.8L11 5M5 11l3 2.8L11 11" />,
  unknown: (
    <>
      <circle cx="8" cy="8" r="6" />
      <path d="M5.5 8h5" />
    </>
  ),
};

export function Icon({ name, size }: { name: string; size?: number }) {
  return <Picture {...(size ? { size } : {})}>{SHAPES[name] ?? SHAPES["unknown"]}</Picture>;
}
