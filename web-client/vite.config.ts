import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: { alias: { "@protocol": here("../protocol/generated/pvp.ts") } },
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    // The server compresses and hashes what it embeds; a data URL would be blocked by the policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: { page: here("index.html"), sw: here("src/sw.ts") },
      output: {
        // A service worker is found by its name, so it has no hash.
        entryFileNames: (chunk) => (chunk.name === "sw" ? "sw.js" : "assets/[name]-[hash].js"),
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:3000", "/ws": { target: "ws://127.0.0.1:3000", ws: true } } },
  test: { include: ["tests/**/*.test.{ts,tsx}"], environment: "node" },
});
