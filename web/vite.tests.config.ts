import { readdirSync } from "node:fs";
import { defineConfig } from "vite";

// The unit tests become plain modules that Node's own test runner runs.
const tests = readdirSync(new URL("./tests", import.meta.url)).filter((name) => name.endsWith(".test.ts"));

export default defineConfig({
  build: {
    ssr: true,
    outDir: ".tests",
    emptyOutDir: true,
    minify: false,
    copyPublicDir: false,
    rolldownOptions: { input: tests.map((name) => `tests/${name}`), output: { entryFileNames: "[name].js" } },
  },
});
