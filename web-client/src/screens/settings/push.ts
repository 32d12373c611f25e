// Turns Web Push on and off on this device, and keeps the server's copy of the browser's subscription right.

import { t } from "../../i18n";
import type { Api } from "../../net/api";
import { ApiError } from "../../net/api";
import { deviceName } from "../../net/device";
import { dropPush, forgetSubscription, keepSubscription, knownSubscription, pushManager } from "../../state/push_state";

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
  const registered = knownSubscription();
  if (registered !== null) await remove(api, registered.id);
  forgetSubscription();
  const subscription = await (await pushManager())?.getSubscription();
  await subscription?.unsubscribe();
}

/** Brings the server's copy up to date, because browsers change their subscriptions by themselves. */
export async function syncPush(api: Api, participant: string): Promise<void> {
  const registered = knownSubscription();
  const manager = registered === null ? null : await pushManager();
  if (registered === null || manager === null) return;
  const subscription = await manager.getSubscription();
  if (registered.participant !== participant) {
    // Somebody else's notifications do not appear on a device that is no longer theirs.
    forgetSubscription();
    await subscription?.unsubscribe();
  } else if (subscription === null) {
    await remove(api, registered.id);
    forgetSubscription();
  } else if (subscription.endpoint !== registered.endpoint) {
    await register(api, participant, subscription);
    await remove(api, registered.id);
  } else if (!(await isRegistered(api, registered.id))) {
    // It ended with the token that it was registered with; whoever has another one has to be told again.
    await startPush(api, participant).catch(unlessRefused);
  }
}

async function isRegistered(api: Api, id: string): Promise<boolean> {
  const { channels } = await api.get<{ channels: readonly { id: string }[] }>("/api/notifications");
  return channels.some((channel) => channel.id === id);
}

/** What the server does not take is over, so that the open page tells again what no push does. */
async function unlessRefused(error: unknown): Promise<void> {
  if (!(error instanceof ApiError) || error.status < 400 || error.status >= 500 || error.status === 429) throw error;
  await dropPush();
}

async function register(api: Api, participant: string, subscription: PushSubscription): Promise<void> {
  const { endpoint, keys } = subscription.toJSON();
  const body = { endpoint, keys: { p256dh: keys?.p256dh, auth: keys?.auth }, label: deviceName() };
  const { id } = await api.post<{ id: string }>("/api/push/subscriptions", body);
  keepSubscription({ id, endpoint: subscription.endpoint, participant });
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
