import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { serviceWorker } from "./build/service_worker.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: { alias: { "@protocol": here("../protocol/generated/pvp.ts") } },
  plugins: [serviceWorker(here("src/sw.ts"))],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    // The server compresses and hashes what it embeds; a data URL would be blocked by the policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: { page: here("index.html") },
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
        // What every screen needs comes as one file, and so does what every stream needs: the headers of five small ones weigh more than they do.
        codeSplitting: {
          includeDependenciesRecursively: false,
          groups: [
            { name: "base", test: /preload-helper|node_modules\/@?preact|src\/(i18n\/index|fold\/(text|json)|net\/(api|server_clock|storage))\b/ },
            { name: "stream", test: /src\/(stream\/(?!markdown|SessionScreen)|terminal\/(AnsiText|StaticOutput|ansi|colours|folded))/ },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:3000", "/ws": { target: "ws://127.0.0.1:3000", ws: true } } },
  test: { include: ["tests/**/*.test.{ts,tsx}"], setupFiles: ["tests/language.setup.ts"], exclude: ["tests/browser/**"], environment: "node", testTimeout: 60_000 },
});
