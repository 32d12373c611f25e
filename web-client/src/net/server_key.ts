// Which server answers at this address. Several can, one after the other: on one machine, two projects
// use the same port. A server is known by its key, which is asked for without a token, so that the token
// of one is not sent to another. This is no proof: whoever serves the page of an address can read what
// browsers keep for it. It keeps honest servers apart.

import type { PublicKeys } from "@protocol";
import { t, wordsAreHere } from "../i18n";
import { Api, ApiError } from "./api";

const TIMEOUT_MS = 5000;
/** Whoever opens the page need not ask twice who answers. */
const FRESH_MS = 2000;

/** The last answer, unless the connection was lost since. */
let answered: { server: PublicKeys; at: number } | null = null;

export async function askPublicKeys(): Promise<PublicKeys> {
  answered = null;
  const server = await ask();
  answered = { server, at: performance.now() };
  return server;
}

/** Another server may answer next time. */
export function doubtServer(): void {
  answered = null;
}

async function ask(): Promise<PublicKeys> {
  const keys = await new Api(null).get<Partial<PublicKeys> | null>("/api/key", { timeoutMs: TIMEOUT_MS });
  const { key, earlier_keys } = keys ?? {};
  if (typeof key === "string" && Array.isArray(earlier_keys)) return { key, earlier_keys };
  // Another program may have an answer for everything.
  await wordsAreHere;
  throw new ApiError(0, t().net.otherServer, "OTHER_SERVER");
}

/** Whether a key is the server's, or was before it was rotated. */
export function hasKey(server: PublicKeys, key: string): boolean {
  return server.key === key || server.earlier_keys.includes(key);
}

function wasJustMet(key: string): boolean {
  return answered !== null && performance.now() - answered.at < FRESH_MS && hasKey(answered.server, key);
}

/** Makes sure of the server before each token that follows a lost connection. */
export class ServerGuard {
  private confirmed: Promise<void> | null = null;
  private hasToldOther = false;

  constructor(
    /** The server's key; `null` if it is not known whose server the token is for. */
    private readonly key: string | null,
    /** Called once, when another server answers. */
    private readonly onOther: () => void = () => undefined,
  ) {}

  /** Resolves if the server that answers is the one that the token is for. */
  confirm(): Promise<void> {
    if (this.confirmed !== null) return this.confirmed;
    const asked = this.ask();
    this.confirmed = asked;
    asked.catch(() => {
      if (this.confirmed === asked) this.doubt();
    });
    return asked;
  }

  /** Another server may answer next time. */
  doubt(): void {
    this.confirmed = null;
    doubtServer();
  }

  private async ask(): Promise<void> {
    if (this.key === null || wasJustMet(this.key) || hasKey(await askPublicKeys(), this.key)) return;
    if (!this.hasToldOther) this.onOther();
    this.hasToldOther = true;
    throw new ApiError(0, t().net.otherServer, "OTHER_SERVER");
  }
}
