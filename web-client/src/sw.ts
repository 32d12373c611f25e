// The service worker: shows pushed notifications, and opens the page when there is no network.

import { workerTexts as german } from "./i18n/de";
import { workerTexts as english } from "./i18n/en";
import { isReplaced, mayKeep, pageTimeout, planFor } from "./sw/caching";
import { keptLanguage } from "./sw/language";
import { addressOf, countOpen, notificationFor, renewedNotification } from "./sw/push_message";
import type { Setting, ShownNotification } from "./sw/push_message";

/** The files of the page, and what their names and contents hash to; set when it is built. */
declare const __SHELL__: readonly string[];
/** Those of the page's files whose names change with their contents. */
declare const __ASSETS__: readonly string[];
declare const __VERSION__: string;

const worker = self as unknown as ServiceWorkerGlobalScope;
const PREFIX = "pvp-shell-";
const CACHE = PREFIX + __VERSION__;
/** More files than any version of the page has. */
const MAX_KEPT = 100;

/** The texts in the language that the page used last, or else in the browser's. */
async function setting(): Promise<Setting> {
  const { language, languages } = worker.navigator;
  const chosen = (await keptLanguage().catch(() => null)) ?? (language.toLowerCase().startsWith("de") ? "de" : "en");
  // The language as the person's country writes it.
  const locale = languages.find((known) => known.split("-")[0] === chosen) ?? chosen;
  return { texts: chosen === "de" ? german : english, locale, now: Date.now() };
}

worker.addEventListener("install", (event) => {
  event.waitUntil(fillCache());
});

// A new worker waits until the pages of the old one are closed, so that these still find their files.
worker.addEventListener("activate", (event) => {
  event.waitUntil(dropOldCaches().then(() => worker.clients.claim()));
});

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const facts = { method: request.method, mode: request.mode, url: request.url, hasAuthorization: request.headers.has("authorization") };
  const plan = planFor(facts, worker.location.origin, __SHELL__, __ASSETS__);
  if (plan === "page") event.respondWith(page(request));
  else if (plan === "asset") event.respondWith(asset(request));
  else if (plan === "file") event.respondWith(file(request));
});

async function fillCache(): Promise<void> {
  const cache = await caches.open(CACHE);
  await cache.addAll(__SHELL__.map((path) => new Request(path, { cache: "no-cache", credentials: "omit" })));
}

async function dropOldCaches(): Promise<void> {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
}

async function page(request: Request): Promise<Response> {
  const { hostname } = worker.location;
  const timeout = pageTimeout(hostname);
  try {
    const fresh = await fetch(request, timeout === null ? {} : { signal: AbortSignal.timeout(timeout) });
    if (!isReplaced(hostname, fresh.status)) return fresh;
  } catch {
    // Answered below.
  }
  const kept = await (await caches.open(CACHE)).match("/");
  return kept ?? new Response((await setting()).texts.offline, { status: 503, headers: { "content-type": "text/plain; charset=utf-8" } });
}

async function file(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch (error) {
    const kept = await (await caches.open(CACHE)).match(request, { ignoreVary: true });
    if (kept === undefined) throw error;
    return kept;
  }
}

async function asset(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request, { ignoreVary: true });
  if (kept !== undefined) return kept;
  const fresh = await fetch(request);
  const facts = { ok: fresh.ok, type: fresh.type, redirected: fresh.redirected, cacheControl: fresh.headers.get("cache-control") };
  if (mayKeep(facts) && (await cache.keys()).length < MAX_KEPT) await cache.put(request, fresh.clone());
  return fresh;
}

worker.addEventListener("push", (event) => {
  const payload = payloadOf(event);
  event.waitUntil(setting().then((known) => show(notificationFor(payload, known))));
});

function payloadOf(event: PushEvent): unknown {
  try {
    return event.data?.json();
  } catch {
    return null;
  }
}

async function show({ title, options }: ShownNotification): Promise<void> {
  await worker.registration.showNotification(title, options);
  const count = countOpen(await worker.registration.getNotifications());
  const badge = worker.navigator as Partial<Pick<Navigator, "setAppBadge" | "clearAppBadge">>;
  // The page sets the exact number when it is opened.
  await (count > 0 ? badge.setAppBadge?.(count) : badge.clearAppBadge?.())?.catch(() => undefined);
}

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(addressOf(event.notification.data)));
});

/** Goes to the card in a page that is open, or opens one. */
async function open(address: string): Promise<void> {
  const pages = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const best = pages.find((page) => page.focused) ?? pages.find((page) => page.visibilityState === "visible") ?? pages[0];
  if (best === undefined || !(await goTo(best, address))) await worker.clients.openWindow(address);
  else await best.focus();
}

/** Whether the page is there; one that this worker does not control cannot be sent anywhere. */
async function goTo(page: WindowClient, address: string): Promise<boolean> {
  // A click without a card only brings the page to the front.
  if (address === "/") return true;
  try {
    return (await page.navigate(new URL(address, worker.location.origin).href)) !== null;
  } catch {
    return false;
  }
}

// Only the page has the right to register a subscription, and it does so whenever it is opened.
worker.addEventListener("pushsubscriptionchange", (event) => {
  event.waitUntil(renew(event as PushSubscriptionChangeEvent));
});

async function renew(event: PushSubscriptionChangeEvent): Promise<void> {
  const options = event.oldSubscription?.options;
  if (options !== undefined) {
    const key = options.applicationServerKey;
    await worker.registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }).catch(() => null);
  }
  await show(renewedNotification((await setting()).texts));
}
