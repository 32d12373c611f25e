// The words of the page, in the language that the person chose or the browser asks for.

import { signal } from "@preact/signals";
import { en } from "./en";

export type Strings = typeof en;
export type Language = "en" | "de";
export const LANGUAGES: { [key in Language]: string } = { en: "English", de: "Deutsch" };

const loaded = signal<Strings>(en);

/** The strings; reading them in a component draws it again when the language changes. */
export function t(): Strings {
  return loaded.value;
}

export function browserLanguage(): Language {
  return navigator.language.toLowerCase().startsWith("de") ? "de" : "en";
}

export async function setLanguage(language: Language): Promise<void> {
  loaded.value = language === "de" ? (await import("./de")).de : en;
  document.documentElement.lang = language;
}
