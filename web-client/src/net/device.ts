// Who this browser is: a token of its own, which can be revoked alone.

import type { CreatedDevice, DeviceList, Invitation, PublicKeys, Role, WhoAmI } from "@protocol";
import { t, wordsAreHere } from "../i18n";
import { Api, ApiError } from "./api";
import { dropNotices } from "./notifications";
import { askPublicKeys, hasKey, ServerGuard } from "./server_key";
import { canSave, forget, isObject, keysWith, load, save, storageKey } from "./storage";

export interface Device {
  token: string;
  participant: string;
  name: string;
  roles: Role[];
  /** The only session that the token is for; `null` means all. */
  session: string | null;
  expires: string | null;
  /** The key of the server that it is for; absent if an older page kept it without. */
  server?: string | null;
  /** The browser keeps nothing, so that it lasts as long as the page is open. */
  isForVisit?: true;
}

const KEY = "device";
/** The devices of other servers that have answered at this address, the last one first. */
const ASIDE = "devices";
const MAX_ASIDE = 8;

/** Who is signed in until the page is closed, if the browser keeps nothing. */
let visiting: Device | null = null;

export function storedDevice(): Device | null {
  return visiting ?? load(KEY, parseDevice);
}

function parseDevice(value: unknown): Device | null {
  if (!isObject(value)) return null;
  const { token, participant, name, roles, session, expires, server } = value;
  const isText = (field: unknown): field is string => typeof field === "string";
  if (!isText(token) || !isText(participant) || !isText(name) || !Array.isArray(roles)) return null;
  return {
    token,
    participant,
    name,
    roles: roles.filter(isText) as Role[],
    session: isText(session) ? session : null,
    expires: isText(expires) ? expires : null,
    server: isText(server) ? server : null,
  };
}

/** Who is signed in at another server of this address, last. */
export function deviceAside(): Device | null {
  return devicesAside()[0] ?? null;
}

function devicesAside(): Device[] {
  const parse = (value: unknown) => (Array.isArray(value) ? value.map(parseDevice).filter((device) => device !== null) : null);
  return load(ASIDE, parse) ?? [];
}

/** What became of the question which server answers at this address. */
export type Meeting =
  /** The one that the device is for, if there is a device. */
  | "known"
  /** Another one, which knows none of the devices here. */
  | "other"
  | "unreachable";

/** Asks which server answers, without a token, and goes on with the device that it has made. Those of others are kept. */
export async function meetServer(): Promise<Meeting> {
  return (await meet()).meeting;
}

/** The same, with the key of the server; `null` if it does not say so. */
async function meet(): Promise<{ meeting: Meeting; key: string | null }> {
  const server = await askPublicKeys().catch(() => null);
  if (server === null) return { meeting: "unreachable", key: null };
  return { meeting: takeDeviceOf(server), key: server.key };
}

function takeDeviceOf(server: PublicKeys): Meeting {
  const isOf = (device: Device) => device.server == null || hasKey(server, device.server);
  const current = storedDevice();
  if (current !== null && isOf(current)) {
    setServer(current, server.key);
    return "known";
  }
  const aside = devicesAside();
  const found = aside.find((device) => device.server != null && isOf(device));
  if (current === null && found === undefined) return "known";
  visiting = null;
  // Its room may be needed for the others.
  forget(KEY);
  keepAside([...(current === null ? [] : [current]), ...aside.filter((device) => device !== found)]);
  if (found === undefined) return "other";
  save(KEY, { ...found, server: server.key });
  return "known";
}

/** The person says that the server is the one they were signed in at, with another key. */
export async function trustServer(): Promise<void> {
  const { key } = await askPublicKeys();
  const [device, ...others] = devicesAside();
  if (device === undefined) return;
  save(KEY, { ...device, server: key });
  keepAside(others);
}

function keepAside(devices: readonly Device[]): void {
  if (devices.length === 0) forget(ASIDE);
  else save(ASIDE, devices.slice(0, MAX_ASIDE));
}

function setServer(device: Device, key: string): void {
  if (device.isForVisit) visiting = { ...device, server: key };
  else if (device.server !== key) save(KEY, { ...device, server: key });
}

function apiOf({ token, server }: Pick<Device, "token" | "server">): Api {
  return new Api(token, new ServerGuard(server ?? null));
}

/**
 * Forgets the token and everything that was kept with it, unless somebody else has been signed in here since.
 * What was seen of the records stays: a server that has lost its tokens may have lost more.
 */
export function forgetDevice(device: Pick<Device, "token" | "participant">): void {
  const current = storedDevice();
  if (current !== null && current.token !== device.token) return;
  visiting = null;
  forget(KEY);
  forgetBelongings(device);
}

/** Forgets what was kept with a token. What belongs to somebody at another server stays. */
function forgetBelongings({ participant }: Pick<Device, "participant">): void {
  void dropNotices().catch(() => undefined);
  for (const key of [...keysWith(`outbox.${participant}.`), ...keysWith(`composer.${participant}.`)]) forget(key);
}

/** Whether an event says that another tab has changed who is signed in. */
export function isOfDevice(event: StorageEvent): boolean {
  return event.key === null || event.key === storageKey(KEY);
}

function deviceOf(token: string, me: Omit<WhoAmI, "kind">): Device {
  return {
    token,
    participant: me.participant,
    name: me.name,
    roles: me.roles,
    session: me.session ?? null,
    expires: me.expires ?? null,
  };
}

/** Makes this the device's token, and ends the one that it had before. */
export async function replaceDevice(made: Device): Promise<Device> {
  const { key } = await meet();
  const before = storedDevice();
  const device = { ...made, server: key };
  if (!save(KEY, device)) return visit(device);
  visiting = null;
  if (before !== null && before.participant !== device.participant) forgetBelongings(before);
  // Whoever cannot be reached now, or was signed out already, has nothing to end.
  if (before !== null) await endDevice(before).catch(() => undefined);
  return device;
}

/** The key of the server that answers; `null` if it does not say so. */
async function serverKey(): Promise<string | null> {
  const server = await askPublicKeys().catch(() => null);
  return server?.key ?? null;
}

/** Signs in until the page is closed. */
function visit(device: Device): Device {
  visiting = { ...device, isForVisit: true };
  return visiting;
}

/** Ends a device's token at the server. */
export async function endDevice(device: Pick<Device, "token" | "server">): Promise<void> {
  const api = apiOf(device);
  const list = await api.get<DeviceList>("/api/devices");
  const here = list.devices.find((listed) => listed.this_device);
  if (here !== undefined) await api.delete(`/api/devices/${encodeURIComponent(here.id)}`);
}

/** Whose token a link carries. */
export function whoIs(token: string): Promise<WhoAmI> {
  return new Api(token).get<WhoAmI>("/api/me");
}

/** Exchanges the token of a link for one of this device. A browser that keeps nothing goes on with the link's, and uses up no device. */
export async function adoptToken(token: string): Promise<Device> {
  if (!canSave()) return visit({ ...deviceOf(token, await whoIs(token)), server: await serverKey() });
  await wordsAreHere;
  const made = await new Api(token).post<CreatedDevice>("/api/devices", { name: deviceName() });
  const device = await replaceDevice(createdDevice(made));
  if (!device.isForVisit) return device;
  await endDevice(device).catch(() => undefined);
  return visit({ ...device, token });
}

/** Uses the code of a link that was made for one device. */
export async function redeemDeviceCode(code: string): Promise<Device> {
  await wordsAreHere;
  const made = await new Api(null).post<CreatedDevice>("/api/join/device", { code, name: deviceName() });
  return createdDevice(made);
}

function createdDevice(made: CreatedDevice): Device {
  return deviceOf(made.token, { ...made, name: made.participant_name });
}

/** Uses a join code, which works once, and makes a device of what it gives. */
export async function redeemCode(code: string, name: string): Promise<Device> {
  const { token } = await new Api(null).post<Invitation>("/api/join", { code, name });
  try {
    return await adoptToken(token);
  } catch {
    // Nobody has the code a second time, so its own token must do.
    return replaceDevice(deviceOf(token, await whoIs(token)));
  }
}

/** Asks again who the token is for; `null` if the server no longer accepts it. */
export async function refreshDevice(device: Device): Promise<Device | null> {
  try {
    const me = await apiOf(device).get<WhoAmI>("/api/me");
    const fresh = { ...device, ...deviceOf(device.token, me) };
    // Somebody else may have been signed in while the server was asked.
    if (storedDevice()?.token !== device.token) return fresh;
    if (fresh.isForVisit) visiting = fresh;
    else save(KEY, { ...fresh, server: storedDevice()?.server ?? null });
    return fresh;
  } catch (error) {
    if (error instanceof ApiError && error.isLoggedOut) return null;
    throw error;
  }
}

/** Whether a device may do what a link allows, no more and no less, so that opening the link changes nothing. */
export function isAsGoodAs(device: Device, link: WhoAmI): boolean {
  const rights = ({ participant, roles, session, expires }: Device) => JSON.stringify([participant, [...roles].sort(), session, expires]);
  return rights(device) === rights(deviceOf(device.token, link));
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
  const { anyBrowser, browserOn } = t().net;
  return system === undefined ? (browser ?? anyBrowser) : browserOn(browser ?? anyBrowser, system);
}

