/** A long list of rows of one height, of which only those in sight are in the page. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type RowWindow, rowWindow } from "../model/window";

interface Properties {
  count: number;
  rowHeight: number;
  render: (index: number) => ComponentChildren;
  /** Whether the page scrolls or the list itself does. */
  scroller: "page" | "self";
  label?: string;
  class?: string;
  /** The row that must be in sight. */
  show?: number;
  /** The list stays at its end as rows are added. */
  stickToEnd?: boolean;
  role?: "rowgroup" | "list" | "log";
  nearEnd?: () => void;
}

export function VirtualList(properties: Properties) {
  const { count, rowHeight, render, scroller, show, stickToEnd, nearEnd } = properties;
  const element = useRef<HTMLDivElement>(null);
  const [rows, setRows] = useState<RowWindow>({ first: 0, last: Math.min(count, 40) });

  const place = (): { top: number; height: number } => {
    const node = element.current;
    if (!node) return { top: 0, height: 0 };
    if (scroller === "self") return { top: node.scrollTop, height: node.clientHeight };
    return { top: Math.max(0, -node.getBoundingClientRect().top), height: window.innerHeight };
  };

  useLayoutEffect(() => {
    const node = element.current;
    if (!node) return undefined;
    const update = (): void => {
      const { top, height } = place();
      const next = rowWindow(top, height, rowHeight, count);
      setRows((old) => (old.first === next.first && old.last === next.last ? old : next));
      if (nearEnd && next.last >= count - 5) nearEnd();
    };
    const target: HTMLElement | Window = scroller === "self" ? node : window;
    target.addEventListener("scroll", update, { passive: true });
    window.addEventListener("resize", update);
    const observer = new ResizeObserver(update);
    observer.observe(node);
    update();
    return () => {
      target.removeEventListener("scroll", update);
      window.removeEventListener("resize", update);
      observer.disconnect();
    };
  }, [count, rowHeight, scroller, nearEnd]);

  useLayoutEffect(() => {
    const node = element.current;
    if (stickToEnd && node && scroller === "self") node.scrollTop = node.scrollHeight;
  }, [count, stickToEnd]);

  useEffect(() => {
    const node = element.current;
    if (!node || show === undefined || show < 0) return;
    const top = show * rowHeight;
    if (scroller === "self") {
      if (top < node.scrollTop) node.scrollTop = top;
      else if (top + rowHeight > node.scrollTop + node.clientHeight) node.scrollTop = top + rowHeight - node.clientHeight;
      return;
    }
    const onPage = node.getBoundingClientRect().top + top;
    if (onPage < 120) window.scrollBy({ top: onPage - 120 });
    else if (onPage + rowHeight > window.innerHeight - 72) window.scrollBy({ top: onPage + rowHeight - window.innerHeight + 72 });
  }, [show]);

  const drawn: ComponentChildren[] = [];
  for (let index = rows.first; index < Math.min(rows.last, count); index += 1) drawn.push(render(index));
  const list = (
    <div class="virtual-space" style={{ blockSize: `${count * rowHeight}px` }} role="presentation">
      <div class="virtual-rows" style={{ transform: `translateY(${rows.first * rowHeight}px)` }} role="presentation">
        {drawn}
      </div>
    </div>
  );
  return (
    <div ref={element} class={properties.class ?? ""} {...(properties.role ? { role: properties.role } : {})} {...(properties.label ? { "aria-label": properties.label } : {})} {...(scroller === "self" ? { tabIndex: 0 } : {})}>
      {list}
    </div>
  );
}
