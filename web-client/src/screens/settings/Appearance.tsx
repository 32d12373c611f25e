// Theme, language, and how an approval is confirmed.

import { LANGUAGES, t } from "../../i18n";
import type { Language } from "../../i18n";
import { preferences, setPreference } from "../../state/preferences";
import type { Confirmation, Theme } from "../../state/preferences";
import { SelectField } from "../parts";

const THEMES: readonly Theme[] = ["system", "light", "dark", "contrast"];
const CONFIRMATIONS: readonly Confirmation[] = ["tap", "second_tap", "hold"];
const STRONG_CONFIRMATIONS = ["second_tap", "hold"] as const;

export function Appearance() {
  const chosen = preferences.value;
  const confirmation = <T extends Confirmation>(value: T) => [value, t().settings.confirmations[value] ?? value] as const;
  return (
    <section class="panel">
      <h2>{t().settings.appearance}</h2>
      <div class="fields">
        <SelectField<Theme>
          label={t().settings.theme}
          value={chosen.theme}
          options={THEMES.map((theme) => [theme, t().settings.themes[theme] ?? theme] as const)}
          onChange={(theme) => setPreference("theme", theme)}
        />
        <SelectField<Language>
          label={t().settings.language}
          value={chosen.language}
          options={Object.entries(LANGUAGES) as [Language, string][]}
          onChange={(language) => setPreference("language", language)}
        />
      </div>
      <fieldset class="stack">
        <legend>{t().settings.confirmation}</legend>
        <div class="fields">
          <SelectField<Confirmation>
            label={t().settings.confirmWrite}
            value={chosen.confirmWrite}
            options={CONFIRMATIONS.map((value) => confirmation(value))}
            onChange={(value) => setPreference("confirmWrite", value)}
          />
          <SelectField<(typeof STRONG_CONFIRMATIONS)[number]>
            label={t().settings.confirmDestructive}
            value={chosen.confirmDestructive}
            options={STRONG_CONFIRMATIONS.map((value) => confirmation(value))}
            hint={t().settings.confirmHint}
            onChange={(value) => setPreference("confirmDestructive", value)}
          />
        </div>
      </fieldset>
    </section>
  );
}
