// Decides between the invitation, the question who somebody is, and the signed-in screens.

import { useEffect, useState } from "preact/hooks";
import { t } from "../i18n";
import { adoptToken, forgetDevice, redeemCode, refreshDevice, storedDevice, whoIs } from "../net/device";
import type { Device } from "../net/device";
import { takeLink } from "../net/link";
import type { LinkContents } from "../net/link";
import { App } from "../state/app";
import { go } from "../state/route";
import { AppContext } from "./context";
import { Frame } from "./Frame";
import { AskName, ConfirmSwitch, Welcome } from "./Welcome";

type Step =
  | { kind: "starting" }
  | { kind: "welcome"; problem: string | null }
  | { kind: "ask_name"; code: string; link: LinkContents; problem: string | null }
  | { kind: "confirm_switch"; token: string; name: string; link: LinkContents; device: Device }
  | { kind: "signed_in"; app: App };

export function Root() {
  const [step, setStep] = useState<Step>({ kind: "starting" });

  function signIn(device: Device, link: LinkContents | null) {
    const app = new App(device, () => {
      app.stop();
      forgetDevice();
      setStep({ kind: "welcome", problem: t().welcome.signedOut });
    });
    openTarget(link, device);
    setStep((before) => {
      if (before.kind === "signed_in") before.app.stop();
      return { kind: "signed_in", app };
    });
  }

  async function openToken(token: string, link: LinkContents) {
    try {
      const before = storedDevice();
      const me = await whoIs(token);
      if (before !== null && before.participant !== me.participant) {
        setStep({ kind: "confirm_switch", token, name: me.name, link, device: before });
      } else {
        signIn(await adoptToken(token), link);
      }
    } catch (error) {
      setStep({ kind: "welcome", problem: messageOf(error) });
    }
  }

  async function openLink(link: LinkContents | null) {
    const device = storedDevice();
    if (link?.token) return openToken(link.token, link);
    if (link?.code) return setStep({ kind: "ask_name", code: link.code, link, problem: null });
    if (device === null) return setStep({ kind: "welcome", problem: null });
    signIn(device, link);
    try {
      if ((await refreshDevice(device)) === null) {
        forgetDevice();
        setStep({ kind: "welcome", problem: t().welcome.signedOut });
      }
    } catch {
      // Not reachable: the screens say so, and go on when it is.
    }
  }

  useEffect(() => {
    void openLink(takeLink());
    // A link that is opened while the page is open only changes the fragment.
    const onHash = () => {
      const link = takeLink();
      if (link !== null) void openLink(link);
    };
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);

  switch (step.kind) {
    case "starting":
      return <p class="center">{t().app.loading}</p>;
    case "welcome":
      return <Welcome problem={step.problem} onLink={(link) => void openLink(link)} />;
    case "ask_name":
      return (
        <AskName
          problem={step.problem}
          onName={async (name) => {
            try {
              signIn(await redeemCode(step.code, name), step.link);
            } catch (error) {
              setStep({ ...step, problem: messageOf(error) });
            }
          }}
        />
      );
    case "confirm_switch":
      return (
        <ConfirmSwitch
          old={step.device.name}
          fresh={step.name}
          onStay={() => signIn(step.device, null)}
          onSwitch={async () => {
            try {
              signIn(await adoptToken(step.token), step.link);
            } catch (error) {
              setStep({ kind: "welcome", problem: messageOf(error) });
            }
          }}
        />
      );
    case "signed_in":
      return (
        <AppContext.Provider value={step.app}>
          <Frame />
        </AppContext.Provider>
      );
  }
}

function openTarget(link: LinkContents | null, device: Device): void {
  const session = link?.session ?? null;
  if (session !== null && link?.gate) go({ screen: "gate", session, gate: link.gate });
  else if (session !== null) go({ screen: "session", session, tab: "stream" });
  else if (link !== null && device.session !== null) go({ screen: "session", session: device.session, tab: "stream" });
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
