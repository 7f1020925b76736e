/** The keyboard: shortcuts of the page and of the view that is open. */

import { useEffect, useRef } from "preact/hooks";
import { type Shortcut, outcome } from "./model/keys";

const groups: { current: Shortcut[] }[] = [];
let enabled = true;
let prefix = "";
let timer = 0;

export function enableShortcuts(on: boolean): void {
  enabled = on;
}

export function activeShortcuts(): Shortcut[] {
  return groups.flatMap((group) => group.current);
}

/** Adds shortcuts while a component is there. Their order is that of components: inner ones win. */
export function useShortcuts(shortcuts: Shortcut[]): void {
  const group = useRef(shortcuts);
  group.current = shortcuts;
  useEffect(() => {
    groups.push(group);
    return () => {
      groups.splice(groups.indexOf(group), 1);
    };
  }, []);
}

function takesText(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || (target instanceof HTMLInputElement && !/^(checkbox|radio|button|range)$/.test(target.type));
}

/** Whether a key belongs to the element that has the focus: Enter on a link or button is its own. */
function isOwn(event: KeyboardEvent): boolean {
  const target = event.target;
  return event.key === "Enter" && target instanceof HTMLElement && target.closest("a, button, summary, [role=tab]") !== null;
}

export function listen(): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape" && takesText(event.target) && event.target instanceof HTMLElement) {
      event.target.blur();
      return;
    }
    if (!enabled || takesText(event.target) || isOwn(event) || document.querySelector("dialog[open]")) return;
    const result = outcome(activeShortcuts(), prefix, event.key);
    window.clearTimeout(timer);
    prefix = "";
    if (result.kind === "wait") {
      prefix = result.prefix;
      timer = window.setTimeout(() => (prefix = ""), 1500);
    } else if (result.kind === "run") {
      event.preventDefault();
      result.shortcut.run();
    }
  });
}
