import { t } from "../../i18n";
import { version } from "../../../package.json";

/** The page is built into the server, so they have the same version. */
export function About() {
  return (
    <section class="panel">
      <h2>{t().settings.about}</h2>
      <p>{t().settings.aboutText}</p>
      <p class="quiet small">{t().settings.version(version)}</p>
    </section>
  );
}
