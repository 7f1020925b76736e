import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { filled, language, preferred, setLanguage, t, word } from "../src/i18n";
import en from "../src/i18n/en.json";
import zh from "../src/i18n/zh.json";

const placeholders = (text: string): string[] => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort();

test("both languages have the same keys, in the same order", () => {
  assert.deepEqual(Object.keys(zh), Object.keys(en));
});

test("both languages use the same values in each text", () => {
  for (const [key, text] of Object.entries(en)) assert.deepEqual(placeholders(zh[key as keyof typeof zh]), placeholders(text), key);
});

test("no text is empty, and Chinese texts are Chinese", () => {
  const same = new Set(["tab.pods", "tab.yaml", "submit.yaml", "usage.gpu", "language.switch", "sweeps.goal"]);
  for (const [key, text] of Object.entries(zh)) {
    assert.ok(text.trim(), key);
    if (!same.has(key)) assert.match(text, /\p{Script=Han}/u, key);
  }
});

test("every text is used", () => {
  // The tests are built into web/.tests, beside web/src.
  const files = (folder: URL): string[] =>
    readdirSync(folder, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? files(new URL(`${entry.name}/`, folder)) : /\.tsx?$/.test(entry.name) ? [readFileSync(new URL(entry.name, folder), "utf8")] : []));
  const source = files(new URL("../src/", import.meta.url)).join("\n");
  const families = [...source.matchAll(/`(\w+)\.\$\{/g), ...source.matchAll(/word\("(\w+)"/g)].map(([, name]) => name);
  for (const key of Object.keys(en)) {
    const name = key.replace(/_one$/, "");
    assert.ok(source.includes(`"${name}"`) || families.includes(name.split(".")[0]), key);
  }
});

test("values are filled in, one of a thing has its own form, and unknown words stay as they are", () => {
  assert.equal(language(), "en");
  assert.equal(t("submit.problems", { n: 1 }), "One problem");
  assert.equal(t("submit.problems", { n: 2 }), "2 problems");
  assert.equal(filled("{a} {b}", { a: "{b}" }), "{b} {b}");
  assert.equal(word("state", "Odd", "Odd, 1 of 2"), "Odd, 1 of 2");
  setLanguage("zh");
  assert.equal(word("state", "Failed"), "失败");
  setLanguage("en");
});

test("the browser's first known language is taken", () => {
  assert.equal(preferred(["fr", "zh-TW", "en"]), "zh");
  assert.equal(preferred(["en-GB", "zh"]), "en");
  assert.equal(preferred([]), "en");
});
