// The words of the page, in the language that the person chose or the browser asks for. Each language
// is a file of its own, so that nobody loads one that they do not read.

import { signal } from "@preact/signals";
import type { firstTexts, laterTexts } from "./en";

export type FirstTexts = typeof firstTexts;
export type LaterTexts = typeof laterTexts;
export type Strings = FirstTexts & LaterTexts;
export type Language = "en" | "de";
export const LANGUAGES: { [key in Language]: string } = { en: "English", de: "Deutsch" };

interface LanguageParts {
  first(): Promise<FirstTexts>;
  later(): Promise<LaterTexts>;
}

// With the query the bundler takes one file for two, and leaves out of each what is not asked for.
const LANGUAGE_PARTS: { [key in Language]: LanguageParts } = {
  en: { first: async () => (await import("./en")).firstTexts, later: async () => (await import("./en?later")).laterTexts },
  de: { first: async () => (await import("./de")).firstTexts, later: async () => (await import("./de?later")).laterTexts },
};

const shown = signal<{ language: Language; strings: FirstTexts & Partial<LaterTexts> } | null>(null);
let wanted: Language | null = null;
let wantsLater = false;
let onWords: () => void;

/** Resolves when there are words; `t` has none before. */
export const wordsAreHere = new Promise<void>((resolve) => {
  onWords = resolve;
});

/**
 * The strings; reading them in a component draws it again when the language changes. Those of
 * `laterTexts` are there once `loadLaterTexts` has ended.
 */
export function t(): Strings {
  if (shown.value === null) throw new Error("something was drawn before a language was loaded");
  return shown.value.strings as Strings;
}

export function shownLanguage(): Language | null {
  return shown.value?.language ?? null;
}

export function browserLanguage(): Language {
  return navigator.language.toLowerCase().startsWith("de") ? "de" : "en";
}

/** Loads a language and shows the page in it, unless another one was chosen meanwhile. */
export async function setLanguage(language: Language): Promise<void> {
  wanted = language;
  const firstTexts = await LANGUAGE_PARTS[language].first();
  // Asked only here, because a screen that needs them may have been opened meanwhile.
  const laterTexts = wantsLater ? await LANGUAGE_PARTS[language].later() : {};
  if (wanted === language) shown.value = { language, strings: { ...firstTexts, ...laterTexts } };
  onWords();
}

/** Loads what the screens say that are loaded when they are first shown. */
export async function loadLaterTexts(): Promise<void> {
  wantsLater = true;
  while (shown.value !== null && shown.value.strings.settings === undefined) {
    const { language } = shown.value;
    const laterTexts = await LANGUAGE_PARTS[language].later();
    if (shown.value.language === language) shown.value = { language, strings: { ...shown.value.strings, ...laterTexts } };
  }
}
