// The words of the page, in the language that the person chose or the browser asks for. Each language
// is a file of its own, so that nobody loads one that they do not read.

import { signal } from "@preact/signals";
import type { en } from "./en";

export type Strings = typeof en;
export type Language = "en" | "de";
export const LANGUAGES: { [key in Language]: string } = { en: "English", de: "Deutsch" };

const STRINGS: { [key in Language]: () => Promise<Strings> } = {
  en: async () => (await import("./en")).en,
  de: async () => (await import("./de")).de,
};

const shown = signal<{ language: Language; strings: Strings } | null>(null);
let wanted: Language | null = null;

/** The strings; reading them in a component draws it again when the language changes. */
export function t(): Strings {
  if (shown.value === null) throw new Error("something was drawn before a language was loaded");
  return shown.value.strings;
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
  const strings = await STRINGS[language]();
  if (wanted === language) shown.value = { language, strings };
}
