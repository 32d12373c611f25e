// Notifications of this browser: while the page is open, and by push when it is closed.

import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n";
import { announce } from "../../state/announcements";
import { preferences, setPreference } from "../../state/preferences";
import { pushState } from "../../state/push_state";
import type { PushState } from "../../state/push_state";
import { useApp } from "../../ui/context";
import { CheckField } from "../parts";
import { useAction } from "../request";
import { startPush, stopPush } from "./push";

type Permission = NotificationPermission | "unsupported";

function currentPermission(): Permission {
  return "Notification" in window ? Notification.permission : "unsupported";
}

export function NotifyHere({ offersPush }: { offersPush: boolean }) {
  const [permission, setPermission] = useState(currentPermission);
  const ask = async () => {
    const answer = await Notification.requestPermission();
    setPermission(answer);
    return answer === "granted";
  };
  return (
    <section class="panel">
      <h3>{t().notify.here}</h3>
      <p role="status">{t().notify.permission[permission]}</p>
      {permission === "default" && (
        <button class="fit" onClick={() => void ask()}>
          {t().notify.ask}
        </button>
      )}
      <CheckField
        label={t().notify.whileOpen}
        checked={preferences.value.notifyHere}
        disabled={permission === "unsupported"}
        onChange={(checked) => setPreference("notifyHere", checked)}
      />
      {offersPush && <Push ask={ask} isBlocked={permission === "denied" || permission === "unsupported"} />}
    </section>
  );
}

function Push({ ask, isBlocked }: { ask(): Promise<boolean>; isBlocked: boolean }) {
  const app = useApp();
  const action = useAction();
  const [state, setState] = useState<PushState | null>(null);
  const { participant } = app.device;
  useEffect(() => {
    pushState(participant).then(setState, () => setState("unsupported"));
  }, []);
  const toggle = () =>
    action.run(async () => {
      if (state === "on") {
        await stopPush(app.api);
        announce(t().notify.pushStopped);
      } else {
        if (!(await ask())) return;
        await startPush(app.api, participant);
        announce(t().notify.pushStarted);
      }
      setState(await pushState(participant));
    });
  if (state === null) return null;
  if (state === "unsupported") return <p class="quiet small">{t().net.pushUnsupported}</p>;
  return (
    <div class="row">
      <span class="grow" id="push-label">
        {t().notify.push}
      </span>
      <span class={state === "on" ? "tag ok" : "tag"}>{state === "on" ? t().notify.pushOn : t().notify.pushOff}</span>
      <button aria-describedby="push-label" disabled={action.busy || (isBlocked && state !== "on")} onClick={toggle}>
        {state === "on" ? t().notify.pushStop : t().notify.pushStart}
      </button>
    </div>
  );
}
