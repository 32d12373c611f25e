// Web Push on this device: the browser's subscription, and the server's copy of it.

import { t } from "../../i18n";
import type { Api } from "../../net/api";
import { ApiError } from "../../net/api";
import { deviceName } from "../../net/device";
import { forget, isObject, load, save } from "../../net/storage";

/** The subscription that the server knows of this browser. */
interface KnownSubscription {
  id: string;
  endpoint: string;
  participant: string;
}

const KEY = "push";

function known(): KnownSubscription | null {
  return load(KEY, (value) => {
    if (!isObject(value)) return null;
    const { id, endpoint, participant } = value;
    const isText = typeof id === "string" && typeof endpoint === "string" && typeof participant === "string";
    return isText ? { id, endpoint, participant } : null;
  });
}

/** The channel that leads to this browser, if one does. */
export function channelOfThisBrowser(): string | null {
  return known()?.id ?? null;
}

/** Where the browser keeps its subscription; `null` if it cannot have one. */
async function pushManager(): Promise<PushManager | null> {
  if (!("serviceWorker" in navigator) || !("PushManager" in globalThis)) return null;
  const registration = await navigator.serviceWorker.getRegistration();
  return registration?.pushManager ?? null;
}

export type PushState = "unsupported" | "off" | "on";

export async function pushState(participant: string): Promise<PushState> {
  const manager = await pushManager();
  if (manager === null) return "unsupported";
  const subscription = await manager.getSubscription();
  const registered = known();
  return subscription !== null && registered?.endpoint === subscription.endpoint && registered.participant === participant ? "on" : "off";
}

/** Whether pushes reach this browser, so that the open page need not say the same. */
export async function isPushedHere(participant: string, channels: readonly { id: string; enabled: boolean }[]): Promise<boolean> {
  const own = channels.find((channel) => channel.id === channelOfThisBrowser());
  if (own?.enabled === false) return false;
  return (await pushState(participant)) === "on";
}

/** Subscribes, after the browser has allowed notifications. */
export async function startPush(api: Api, participant: string): Promise<void> {
  const manager = await pushManager();
  if (manager === null) throw new Error(t().net.pushUnsupported);
  const { key } = await api.get<{ key: string }>("/api/push/key");
  const applicationServerKey = fromBase64Url(key);
  const old = await manager.getSubscription();
  // The key of another server, or of this one before it changed, would deliver nothing.
  if (old !== null && !isSameKey(old.options.applicationServerKey, applicationServerKey)) await old.unsubscribe();
  const subscription = await manager.subscribe({ userVisibleOnly: true, applicationServerKey });
  await register(api, participant, subscription);
}

export async function stopPush(api: Api): Promise<void> {
  const registered = known();
  if (registered !== null) await remove(api, registered.id);
  forget(KEY);
  const subscription = await (await pushManager())?.getSubscription();
  await subscription?.unsubscribe();
}

/** Ends the browser's subscription without the server, which no longer listens to this device. */
export async function dropPush(): Promise<void> {
  if (known() === null) return;
  forget(KEY);
  const subscription = await (await pushManager())?.getSubscription();
  await subscription?.unsubscribe();
}

/** Brings the server's copy up to date, because browsers change their subscriptions by themselves. */
export async function syncPush(api: Api, participant: string): Promise<void> {
  const registered = known();
  const manager = registered === null ? null : await pushManager();
  if (registered === null || manager === null) return;
  const subscription = await manager.getSubscription();
  if (registered.participant !== participant) {
    // Somebody else's notifications do not appear on a device that is no longer theirs.
    forget(KEY);
    await subscription?.unsubscribe();
  } else if (subscription === null) {
    await remove(api, registered.id);
    forget(KEY);
  } else if (subscription.endpoint !== registered.endpoint) {
    await register(api, participant, subscription);
    await remove(api, registered.id);
  }
}

async function register(api: Api, participant: string, subscription: PushSubscription): Promise<void> {
  const { endpoint, keys } = subscription.toJSON();
  const body = { endpoint, keys: { p256dh: keys?.p256dh, auth: keys?.auth }, label: deviceName() };
  const { id } = await api.post<{ id: string }>("/api/push/subscriptions", body);
  save(KEY, { id, endpoint: subscription.endpoint, participant });
}

async function remove(api: Api, id: string): Promise<void> {
  try {
    await api.delete(`/api/push/subscriptions/${encodeURIComponent(id)}`);
  } catch (error) {
    // The server had forgotten it already.
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
  }
}

export function fromBase64Url(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

function isSameKey(old: ArrayBuffer | null, fresh: Uint8Array): boolean {
  if (old === null || old.byteLength !== fresh.length) return false;
  const bytes = new Uint8Array(old);
  return fresh.every((byte, at) => byte === bytes[at]);
}
