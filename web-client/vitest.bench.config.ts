import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// Prints figures and asserts nothing: `npm run bench`.
export default defineConfig({
  resolve: { alias: { "@protocol": fileURLToPath(new URL("../protocol/generated/pvp.ts", import.meta.url)) } },
  test: { include: ["bench/**/*.bench.ts"], environment: "node", testTimeout: 3 * 3600_000, hookTimeout: 120_000 },
});
