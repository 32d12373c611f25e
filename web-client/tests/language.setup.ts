// The page draws nothing before its language is there, so neither does a test.

import { loadLaterTexts, setLanguage } from "../src/i18n";

await setLanguage("en");
await loadLaterTexts();
