import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// Real browsers against a real server: `npm run test:browser`.
export default defineConfig({
  resolve: { alias: { "@protocol": fileURLToPath(new URL("../protocol/generated/pvp.ts", import.meta.url)) } },
  test: {
    include: ["tests/browser/**/*.test.ts"],
    environment: "node",
    testTimeout: 180_000,
    hookTimeout: 120_000,
    maxWorkers: 2,
  },
});
