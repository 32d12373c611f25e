// What a person chooses for this device, how they are notified, and where they are signed in.

import { useEffect } from "preact/hooks";
import { t } from "../i18n";
import { About } from "../screens/settings/About";
import { Account } from "../screens/settings/Account";
import { Appearance } from "../screens/settings/Appearance";
import { Channels } from "../screens/settings/Channels";
import { Devices } from "../screens/settings/Devices";
import { NotificationChoices } from "../screens/settings/NotificationChoices";
import { NotifyHere } from "../screens/settings/NotifyHere";
import { LoadProblem } from "../screens/parts";
import { useLoaded } from "../screens/request";
import type { NotificationSettings } from "../screens/settings/types";
import { useApp } from "./context";

export function Settings() {
  const app = useApp();
  const settings = useLoaded("", (signal) => app.api.get<NotificationSettings>("/api/notifications", { signal }));
  // The open page follows what was read or saved here.
  useEffect(() => void (app.notificationSettings.value = settings.value ?? app.notificationSettings.value), [settings.value]);
  return (
    <div class="screen">
      <h1>{t().settings.heading}</h1>
      <Appearance />
      <section class="stack">
        <h2>{t().notify.heading}</h2>
        <p class="quiet small">{t().notify.intro}</p>
        <NotifyHere offersPush={settings.value?.kinds.includes("push") ?? false} />
        <LoadProblem problem={settings.problem} onRetry={settings.reload} />
        {settings.value !== null && <Channels settings={settings.value} onChanged={settings.reload} />}
        {settings.value !== null && <NotificationChoices settings={settings.value} onSaved={settings.set} />}
      </section>
      <Devices />
      <Account />
      <About />
    </div>
  );
}
