// What a person chose on this device.

import { computed, effect, signal } from "@preact/signals";
import { browserLanguage, setLanguage, shownLanguage } from "../i18n";
import type { Language } from "../i18n";
import { isObject, load, save } from "../net/storage";
import { keepLanguage } from "../sw/language";

export type Theme = "system" | "light" | "dark" | "contrast";
/** How an approval is confirmed, so that a pocket approves nothing. */
export type Confirmation = "tap" | "second_tap" | "hold";

export interface Preferences {
  theme: Theme;
  language: Language;
  confirmWrite: Confirmation;
  confirmDestructive: Exclude<Confirmation, "tap">;
  /** Show a notification of the browser while the page is open and hidden. */
  notifyHere: boolean;
}

const THEMES: readonly string[] = ["system", "light", "dark", "contrast"];
const CONFIRMATIONS: readonly string[] = ["tap", "second_tap", "hold"];

function defaults(): Preferences {
  return { theme: "system", language: browserLanguage(), confirmWrite: "tap", confirmDestructive: "hold", notifyHere: true };
}

function parse(value: unknown): Preferences | null {
  if (!isObject(value)) return null;
  const base = defaults();
  const oneOf = <T>(choices: readonly string[], field: unknown, otherwise: T): T =>
    typeof field === "string" && choices.includes(field) ? (field as T) : otherwise;
  return {
    theme: oneOf(THEMES, value.theme, base.theme),
    language: oneOf(["en", "de"], value.language, base.language),
    confirmWrite: oneOf(CONFIRMATIONS, value.confirmWrite, base.confirmWrite),
    confirmDestructive: oneOf(["second_tap", "hold"], value.confirmDestructive, base.confirmDestructive),
    notifyHere: typeof value.notifyHere === "boolean" ? value.notifyHere : base.notifyHere,
  };
}

export const preferences = signal<Preferences>(load("preferences", parse) ?? defaults());

export function setPreference<K extends keyof Preferences>(key: K, value: Preferences[K]): void {
  preferences.value = { ...preferences.value, [key]: value };
  save("preferences", preferences.value);
}

/** Applies the theme and the language, and keeps doing so; ends when there are words to draw with. */
export async function applyPreferences(): Promise<void> {
  effect(() => {
    document.documentElement.dataset.theme = preferences.value.theme;
  });
  effect(() => {
    const language = shownLanguage();
    if (language !== null) document.documentElement.lang = language;
  });
  const chosen = computed(() => preferences.value.language);
  await setLanguage(chosen.value).catch(() => setLanguage(chosen.value === "de" ? "en" : "de"));
  effect(() => {
    // Without its file the page stays in the language that it has.
    void setLanguage(chosen.value).catch(() => undefined);
    void keepLanguage(chosen.value).catch(() => undefined);
  });
}
