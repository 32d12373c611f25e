// Draws the invitation, the question who somebody is, or the signed-in screens.

import { useEffect } from "preact/hooks";
import { t } from "../i18n";
import * as devices from "../net/device";
import type { Device } from "../net/device";
import { takeLink } from "../net/link";
import type { LinkContents } from "../net/link";
import { App } from "../state/app";
import { dropPush } from "../state/push_state";
import { go, route } from "../state/route";
import { SignIn } from "../state/sign_in";
import { AppContext } from "./context";
import { Frame, SessionScreen } from "./Frame";
import { laterWithTexts } from "./later";

const VotePage = laterWithTexts(async () => (await import("./VotePage")).VotePage);
const Welcome = laterWithTexts(async () => (await import("./Welcome")).Welcome);
const AskName = laterWithTexts(async () => (await import("./Welcome")).AskName);
const ConfirmSwitch = laterWithTexts(async () => (await import("./Welcome")).ConfirmSwitch);

/** Takes the link of the address and asks the server, which needs no words yet. */
export function startSignIn(): SignIn<App> {
  const signIn = new SignIn<App>({ ...devices, dropPush, run, openTarget });
  const link = takeLink();
  void signIn.openLink(link);
  if (leadsToSession(link)) void SessionScreen.load().catch(() => undefined);
  return signIn;
}

/** Whether the stream of a session is opened first. */
function leadsToSession(link: LinkContents | null): boolean {
  if (link === null) return route.value.screen === "session";
  return link.session !== null && link.gate === null;
}

export function Root({ signIn }: { signIn: SignIn<App> }) {
  useEffect(() => {
    // A link that is opened while the page is open only changes the fragment.
    const onHash = () => {
      const link = takeLink();
      if (link !== null) void signIn.openLink(link);
    };
    const onStorage = (event: StorageEvent) => {
      if (devices.isOfDevice(event)) signIn.onOtherTab();
    };
    addEventListener("hashchange", onHash);
    addEventListener("storage", onStorage);
    return () => {
      removeEventListener("hashchange", onHash);
      removeEventListener("storage", onStorage);
      signIn.stop();
    };
  }, []);

  const step = signIn.step.value;
  switch (step.kind) {
    case "starting":
      return <p class="center">{t().app.loading}</p>;
    case "welcome":
      return (
        <Welcome
          problem={step.problem}
          aside={devices.deviceAside()?.name ?? null}
          onLink={(link) => void signIn.openLink(link)}
          onTrust={() => devices.trustServer().then(() => signIn.openLink(null))}
        />
      );
    case "ask_name":
      return <AskName problem={step.problem} onName={(name) => signIn.openCode(step.code, name, step.link)} />;
    case "confirm_switch":
      return (
        <ConfirmSwitch
          old={{ name: step.device.name, id: step.device.participant }}
          fresh={{ name: step.name, id: step.participant }}
          onStay={() => void signIn.confirmSwitch(false)}
          onSwitch={() => signIn.confirmSwitch(true)}
        />
      );
    case "vote":
      return <VotePage key={step.secret} secret={step.secret} onLeave={() => void signIn.openLink(null)} />;
    case "signed_in":
      return (
        // Another person's screens are other ones, so that nothing of the one before stays on them.
        <AppContext.Provider key={step.app.device.token} value={step.app}>
          <Frame />
        </AppContext.Provider>
      );
  }
}

function run(device: Device, onLoggedOut: (app: App) => void, onOtherServer: () => void): App {
  const app: App = new App(device, () => onLoggedOut(app), onOtherServer);
  return app;
}

function openTarget(link: LinkContents | null, device: Device): void {
  const session = link?.session ?? null;
  if (session !== null && link?.gate) go({ screen: "gate", session, gate: link.gate });
  else if (session !== null) go({ screen: "session", session, tab: "stream" });
  else if (link !== null && device.session !== null) go({ screen: "session", session: device.session, tab: "stream" });
}
