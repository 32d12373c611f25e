// Who uses this browser: goes from links, codes and kept tokens to the invitation, the question who
// somebody is, or the signed-in screens.

import { signal } from "@preact/signals";
import { t, wordsAreHere } from "../i18n";
import type { Device, Meeting } from "../net/device";
import type { LinkContents } from "../net/link";
import type { WhoAmI } from "@protocol";
import { messageOf } from "../ui/message";

/** What goes on for somebody who is signed in. */
export interface Running {
  readonly device: Pick<Device, "token">;
  stop(): void;
}

export type Step<A extends Running> =
  | { kind: "starting" }
  | { kind: "welcome"; problem: string | null }
  | { kind: "ask_name"; code: string; link: LinkContents; problem: string | null }
  | { kind: "confirm_switch"; name: string; participant: string | null; link: LinkContents; device: Device; adopt(): Promise<Device>; decline?(): void }
  | { kind: "vote"; secret: string }
  | { kind: "signed_in"; app: A };

/** What signing in asks of the server, the browser's storage and the screens. */
export interface SignInParts<A extends Running> {
  /** Asks which server answers at this address, and takes the device that is for it. */
  meetServer(): Promise<Meeting>;
  storedDevice(): Device | null;
  forgetDevice(device: Device): void;
  refreshDevice(device: Device): Promise<Device | null>;
  isAsGoodAs(device: Device, link: WhoAmI): boolean;
  whoIs(token: string): Promise<WhoAmI>;
  adoptToken(token: string): Promise<Device>;
  redeemCode(code: string, name: string): Promise<Device>;
  redeemDeviceCode(code: string): Promise<Device>;
  replaceDevice(device: Device): Promise<Device>;
  endDevice(device: Device): Promise<void>;
  dropPush(): Promise<void>;
  run(device: Device, onLoggedOut: (app: A) => void, onOtherServer: () => void): A;
  /** Opens what a link is about. */
  openTarget(link: LinkContents | null, device: Device): void;
}

export class SignIn<A extends Running> {
  readonly step = signal<Step<A>>({ kind: "starting" });

  constructor(private readonly parts: SignInParts<A>) {}

  stop(): void {
    this.running?.stop();
  }

  async openLink(link: LinkContents | null): Promise<void> {
    // A vote link signs nobody in, and leaves alone whose device this is.
    if (link?.vote) return this.turnTo({ kind: "vote", secret: link.vote });
    const asked = link?.token ? this.parts.whoIs(link.token) : null;
    // Awaited below, when it is known which server answers.
    asked?.catch(() => undefined);
    const meeting = await this.parts.meetServer();
    const device = this.parts.storedDevice();
    if (link?.token && asked !== null) return this.openToken(link.token, asked, link);
    if (link?.device) return this.openDeviceCode(link.device, link);
    if (link?.code) return this.turnTo({ kind: "ask_name", code: link.code, link, problem: null });
    if (device === null) return this.askForLink(meeting);
    this.signIn(device, link);
    try {
      if ((await this.parts.refreshDevice(device)) === null) this.signedOut(device, null);
    } catch {
      // Not reachable: the screens say so, and go on when it is.
    }
  }

  /** Joins with a code, after asking if that signs somebody out. */
  async openCode(code: string, name: string, link: LinkContents): Promise<void> {
    const device = this.parts.storedDevice();
    const adopt = () => this.parts.redeemCode(code, name);
    if (device !== null) return this.turnTo({ kind: "confirm_switch", name, participant: null, link, device, adopt });
    try {
      this.signIn(await adopt(), link);
    } catch (error) {
      this.turnTo({ kind: "ask_name", code, link, problem: messageOf(error) });
    }
  }

  /** Answers whether the device goes to the person of the link. */
  async confirmSwitch(goesOn: boolean): Promise<void> {
    const asked = this.step.value;
    if (asked.kind !== "confirm_switch") return;
    if (!goesOn) {
      asked.decline?.();
      return this.signIn(asked.device, null);
    }
    try {
      this.signIn(await asked.adopt(), asked.link);
    } catch (error) {
      this.turnTo({ kind: "welcome", problem: messageOf(error) });
    }
  }

  /** Another tab has signed somebody in or out. */
  onOtherTab(): void {
    const app = this.running;
    const device = this.parts.storedDevice();
    // Questions and votes are answered by whoever they are on the screen for.
    if ((app === null && this.step.value.kind !== "welcome") || app?.device.token === device?.token) return;
    if (device !== null) this.signIn(device, null);
    else this.turnTo({ kind: "welcome", problem: null });
  }

  private get running(): A | null {
    const step = this.step.value;
    return step.kind === "signed_in" ? step.app : null;
  }

  /** Goes to a step. What was going on for somebody ends with the screens that showed it. */
  private turnTo(next: Step<A>): void {
    this.running?.stop();
    this.step.value = next;
  }

  private async askForLink(meeting: Meeting): Promise<void> {
    await wordsAreHere;
    this.turnTo({ kind: "welcome", problem: meeting === "other" ? t().net.serverChanged : null });
  }

  private signIn(device: Device, link: LinkContents | null): void {
    const app = this.parts.run(
      device,
      (ended) => this.signedOut(device, ended),
      () => this.otherServer(device),
    );
    this.parts.openTarget(link, device);
    this.turnTo({ kind: "signed_in", app });
  }

  /** Another server answers at this address, at which the person may be signed in, too. */
  private otherServer(device: Device): void {
    if (this.running?.device.token === device.token) void this.openLink(null);
  }

  /** The token of a device has ended. Whoever was signed in here in the meantime stays. */
  private signedOut(device: Device, app: A | null): void {
    app?.stop();
    this.parts.forgetDevice(device);
    const isShown = this.running?.device.token === device.token;
    const other = this.parts.storedDevice();
    if (other !== null) return isShown ? this.signIn(other, null) : undefined;
    void this.parts.dropPush().catch(() => undefined);
    if (isShown) this.turnTo({ kind: "welcome", problem: t().net.signedOut });
  }

  private async openToken(token: string, asked: Promise<WhoAmI>, link: LinkContents): Promise<void> {
    const { parts } = this;
    try {
      const before = parts.storedDevice();
      const me = await asked;
      if (before !== null && before.participant !== me.participant) {
        return this.turnTo({ kind: "confirm_switch", name: me.name, participant: me.participant, link, device: before, adopt: () => parts.adoptToken(token) });
      }
      const fresh = before === null ? null : await parts.refreshDevice(before);
      this.signIn(fresh !== null && parts.isAsGoodAs(fresh, me) ? fresh : await parts.adoptToken(token), link);
    } catch (error) {
      this.turnTo({ kind: "welcome", problem: messageOf(error) });
    }
  }

  /** The code of a link that works once is used first: whose it is, only the server knows. */
  private async openDeviceCode(code: string, link: LinkContents): Promise<void> {
    const { parts } = this;
    const before = parts.storedDevice();
    try {
      const fresh = await parts.redeemDeviceCode(code);
      const adopt = () => parts.replaceDevice(fresh);
      if (before === null || before.participant === fresh.participant) return this.signIn(await adopt(), link);
      // Nobody can use the code again, so its device must not be left behind.
      const decline = () => void parts.endDevice(fresh).catch(() => undefined);
      this.turnTo({ kind: "confirm_switch", name: fresh.name, participant: fresh.participant, link, device: before, adopt, decline });
    } catch (error) {
      // Whoever opens a link again that they have used already comes back to where it led.
      if (before !== null) return this.signIn(before, link);
      this.turnTo({ kind: "welcome", problem: messageOf(error) });
    }
  }
}
