// Who this browser is: a token of its own, which can be revoked alone.

import type { Invitation, Role, WhoAmI } from "@protocol";
import { Api, ApiError } from "./api";
import { forget, isObject, keysWith, load, save } from "./storage";

export interface Device {
  token: string;
  participant: string;
  name: string;
  roles: Role[];
  /** The only session that the token is for; `null` means all. */
  session: string | null;
  expires: string | null;
}

const KEY = "device";

export function storedDevice(): Device | null {
  return load(KEY, (value) => {
    if (!isObject(value)) return null;
    const { token, participant, name, roles, session, expires } = value;
    const isText = (field: unknown): field is string => typeof field === "string";
    if (!isText(token) || !isText(participant) || !isText(name) || !Array.isArray(roles)) return null;
    return {
      token,
      participant,
      name,
      roles: roles.filter(isText) as Role[],
      session: isText(session) ? session : null,
      expires: isText(expires) ? expires : null,
    };
  });
}

/** Forgets the token and everything that was kept with it. */
export function forgetDevice(): void {
  for (const key of [KEY, ...keysWith("outbox."), ...keysWith("head.")]) forget(key);
}

function keep(token: string, me: WhoAmI): Device {
  const device = {
    token,
    participant: me.participant,
    name: me.name,
    roles: me.roles,
    session: me.session ?? null,
    expires: me.expires ?? null,
  };
  const before = storedDevice();
  if (before !== null && before.participant !== device.participant) forgetDevice();
  save(KEY, device);
  return device;
}

/** Whose token a link carries. */
export function whoIs(token: string): Promise<WhoAmI> {
  return new Api(token).get<WhoAmI>("/api/me");
}

/** Exchanges the token of a link for one of this device. */
export async function adoptToken(token: string): Promise<Device> {
  const made = await new Api(token).post<{ token: string }>("/api/devices", { name: deviceName() });
  return keep(made.token, await whoIs(made.token));
}

/** Uses a join code, which works once, so that its token is this device's alone. */
export async function redeemCode(code: string, name: string): Promise<Device> {
  const invitation = await new Api(null).post<Invitation>("/api/join", { code, name });
  return keep(invitation.token, await whoIs(invitation.token));
}

/** Asks again who the token is for; `null` if the server no longer accepts it. */
export async function refreshDevice(device: Device): Promise<Device | null> {
  try {
    return keep(device.token, await whoIs(device.token));
  } catch (error) {
    if (error instanceof ApiError && error.isLoggedOut) return null;
    throw error;
  }
}

/** A name for the list of devices, such as `Chrome on Android`. */
export function deviceName(agent: string = navigator.userAgent): string {
  const first = (names: [RegExp, string][]) => names.find(([pattern]) => pattern.test(agent))?.[1];
  const browser = first([
    [/Edg\//, "Edge"],
    [/Firefox\//, "Firefox"],
    [/Chrome\//, "Chrome"],
    [/Safari\//, "Safari"],
  ]);
  const system = first([
    [/Android/, "Android"],
    [/iPhone/, "iPhone"],
    [/iPad/, "iPad"],
    [/Mac OS X/, "Mac"],
    [/Windows/, "Windows"],
    [/Linux/, "Linux"],
  ]);
  return system === undefined ? (browser ?? "Browser") : `${browser ?? "Browser"} on ${system}`;
}

