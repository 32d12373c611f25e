// The service worker, which shows pushed notifications and says when there is no network.

/** The only script address that this page ever loads by name. */
const WORKER = "/sw.js";

interface ScriptPolicy {
  createScriptURL(url: string): string;
}

function trustedWorkerUrl(): string {
  const factory = (window as { trustedTypes?: { createPolicy(name: string, rules: ScriptPolicy): ScriptPolicy } }).trustedTypes;
  if (factory === undefined) return WORKER;
  const policy = factory.createPolicy("pvp", {
    createScriptURL(url) {
      if (url !== WORKER) throw new TypeError("only the service worker is loaded by its address");
      return url;
    },
  });
  return policy.createScriptURL(WORKER);
}

/** Registers the worker where the browser has them: on https and on this machine. */
export async function registerServiceWorker(): Promise<ServiceWorkerRegistration | null> {
  if (!("serviceWorker" in navigator) || import.meta.env.DEV) return null;
  try {
    return await navigator.serviceWorker.register(trustedWorkerUrl());
  } catch {
    return null;
  }
}
