import { mergeConfig } from "vitest/config";
import browser from "./vitest.browser.config.ts";

// The picture that the README opens with: `npm run screenshots`.
const config = mergeConfig(browser, {});
config.test = { ...config.test, include: ["scripts/*.picture.ts"] };
export default config;
