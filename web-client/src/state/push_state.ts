// Whether Web Push is on in this browser, which the open page has to know from the beginning.

import { forget, isObject, load, save } from "../net/storage";

/** The subscription that the server knows of this browser. */
export interface KnownSubscription {
  id: string;
  endpoint: string;
  participant: string;
}

const KEY = "push";

export function knownSubscription(): KnownSubscription | null {
  return load(KEY, (value) => {
    if (!isObject(value)) return null;
    const { id, endpoint, participant } = value;
    const isText = typeof id === "string" && typeof endpoint === "string" && typeof participant === "string";
    return isText ? { id, endpoint, participant } : null;
  });
}

/** The channel that leads to this browser, if one does. */
export function channelOfThisBrowser(): string | null {
  return knownSubscription()?.id ?? null;
}

/** Where the browser keeps its subscription; `null` if it cannot have one. */
export async function pushManager(): Promise<PushManager | null> {
  if (!("serviceWorker" in navigator) || !("PushManager" in globalThis)) return null;
  const registration = await navigator.serviceWorker.getRegistration();
  return registration?.pushManager ?? null;
}

export type PushState = "unsupported" | "off" | "on";

export async function pushState(participant: string): Promise<PushState> {
  const manager = await pushManager();
  if (manager === null) return "unsupported";
  const subscription = await manager.getSubscription();
  const registered = knownSubscription();
  return subscription !== null && registered?.endpoint === subscription.endpoint && registered.participant === participant ? "on" : "off";
}

/** Whether pushes reach this browser, so that the open page need not say the same. */
export async function isPushedHere(participant: string, channels: readonly { id: string; enabled: boolean }[]): Promise<boolean> {
  const own = channels.find((channel) => channel.id === channelOfThisBrowser());
  if (own?.enabled === false) return false;
  return (await pushState(participant)) === "on";
}

export function keepSubscription(subscription: KnownSubscription): void {
  save(KEY, subscription);
}

export function forgetSubscription(): void {
  forget(KEY);
}

/** Ends the browser's subscription without the server, which no longer listens to this device. */
export async function dropPush(): Promise<void> {
  if (knownSubscription() === null) return;
  forgetSubscription();
  const subscription = await (await pushManager())?.getSubscription();
  await subscription?.unsubscribe();
}
