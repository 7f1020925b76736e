import { defineConfig } from "vite";

// For `npm run dev`: where a dashboard's server listens.
const server = process.env["GANGLINE_DASHBOARD"] ?? "http://127.0.0.1:8765";

export default defineConfig({
  base: "./", // the page may be served below a path
  build: {
    outDir: "../src/gangline/dashboard/static",
    emptyOutDir: true,
    target: ["chrome123", "firefox121", "safari17.5"],
    assetsInlineLimit: 0, // no data: address in place of a file
    cssCodeSplit: false,
    modulePreload: { polyfill: false }, // it would be an inline script
    reportCompressedSize: false,
    license: { fileName: "licenses.md" },
  },
  server: { proxy: { "/api": { target: server, changeOrigin: true } } },
});
