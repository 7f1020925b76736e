/** Texts of the page in the viewer's language. */

import en from "./en.json";
import zh from "./zh.json";

export type Key = keyof typeof en;
export type Language = "en" | "zh";

const TEXTS: Record<Language, Record<string, string>> = { en, zh };
let current: Language = "en";

export function language(): Language {
  return current;
}

export function setLanguage(next: Language): void {
  current = next;
}

/** What a browser prefers, among the languages there are. */
export function preferred(languages: readonly string[]): Language {
  return languages.map((name) => name.toLowerCase()).find((name) => name.startsWith("zh") || name.startsWith("en"))?.startsWith("zh") ? "zh" : "en";
}

export function filled(template: string, values: Record<string, string | number>): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name]) : whole));
}

/** A text with its values. Where `n` is 1 and the language has a form for it (`key_one`), that form. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const texts = TEXTS[current];
  const one = values["n"] === 1 ? texts[`${key}_one`] : undefined;
  return filled(one ?? texts[key] ?? key, values);
}

/** A word of the server's, such as a state, if there is a text for it. */
export function word(prefix: string, value: string, fallback = value): string {
  return TEXTS[current][`${prefix}.${value}`] ?? fallback;
}
