// Who is signed in here, and how to leave.

import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import { endDevice, forgetDevice } from "../../net/device";
import { ApiError } from "../../net/api";
import { dropNotices } from "../../net/notifications";
import type { App } from "../../state/app";
import { useApp } from "../../ui/context";
import { dateAndTime } from "../../ui/format";
import { ConfirmButton, roleNames } from "../parts";
import { useAction } from "../request";
import { stopPush } from "./push";

export function Account() {
  const app = useApp();
  const action = useAction();
  const { name, participant, roles, session, expires } = app.device;
  return (
    <section class="panel">
      <h2>{t().settings.account}</h2>
      <p>
        {t().settings.signedInAs(escapeInvisible(name))} <span class="mono quiet">{participant}</span>
      </p>
      <p class="row quiet small">
        <span class="tag">{roleNames(roles)}</span>
        {session !== null && <span>{t().settings.onlySession(session)}</span>}
        {expires !== null && <span>{t().settings.until(dateAndTime(expires))}</span>}
      </p>
      <p class="quiet small">{t().settings.signOutHint}</p>
      <ConfirmButton
        label={t().settings.signOut}
        name={t().settings.signOut}
        question={t().settings.signOutSure}
        disabled={action.busy}
        onConfirm={() => action.run(() => signOut(app))}
      />
    </section>
  );
}

/** Ends the token at the server, then forgets it here. If the server cannot be reached, it stays. */
async function signOut(app: App): Promise<void> {
  await stopPush(app.api).catch(onlyMissing);
  await endDevice(app.device).catch(onlyMissing);
  app.stop();
  forgetDevice(app.device);
  // The page that would take them away is gone in a moment.
  await dropNotices().catch(() => undefined);
  location.replace("/");
  location.reload();
}

/** A server without the route has nothing to end; any other failure is one. */
function onlyMissing(error: unknown): null {
  if (error instanceof ApiError && (error.status === 404 || error.status === 401)) return null;
  throw error;
}
