// Builds the service worker as one script of its own, which knows the files of the page.

import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { build } from "vite";
import type { Plugin, Rolldown } from "vite";

export function serviceWorker(entry: string): Plugin {
  return {
    name: "pvp-service-worker",
    apply: "build",
    async writeBundle(options, bundle) {
      const directory = options.dir ?? "dist";
      const shell = ["/", ...pageFiles(bundle), ...publicFiles(directory)].sort();
      await build({
        configFile: false,
        logLevel: "warn",
        publicDir: false,
        define: { __SHELL__: JSON.stringify(shell), __ASSETS__: JSON.stringify(hashedFiles(bundle)), __VERSION__: JSON.stringify(hashOf(directory, shell)) },
        build: {
          target: "es2022",
          outDir: directory,
          emptyOutDir: false,
          // A service worker is found by its name, so it has no hash; and it is a classic script, so it imports nothing.
          rollupOptions: { input: entry, output: { format: "iife", entryFileNames: "sw.js" } },
        },
      });
    },
  };
}

/** Larger files, such as the terminal, are kept when they are first used. */
const MAX_BYTES = 256 * 1024;

/** What the page needs at once, and the small files that it loads later. */
function pageFiles(bundle: Rolldown.OutputBundle): string[] {
  const isKept = (output: Rolldown.OutputChunk | Rolldown.OutputAsset) => {
    const content = output.type === "chunk" ? output.code : output.source;
    return content.length <= MAX_BYTES || (output.type === "chunk" && output.isEntry);
  };
  const files = Object.values(bundle).filter((output) => /\.(js|css)$/.test(output.fileName) && isKept(output));
  return files.map((output) => `/${output.fileName}`);
}

/** Every file whose name changes with its content; `vite.config.ts` puts them there. */
function hashedFiles(bundle: Rolldown.OutputBundle): string[] {
  const names = Object.keys(bundle).filter((name) => name.startsWith("assets/"));
  return names.map((name) => `/${name}`).sort();
}

function publicFiles(directory: string): string[] {
  const icons = readdirSync(join(directory, "icons")).map((name) => `/icons/${name}`);
  return ["/manifest.webmanifest", ...icons];
}

function hashOf(directory: string, shell: readonly string[]): string {
  const hash = createHash("sha256");
  for (const path of shell) {
    hash.update(path);
    hash.update(readFileSync(join(directory, path === "/" ? "index.html" : path)));
  }
  return hash.digest("hex").slice(0, 16);
}
