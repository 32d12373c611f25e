// The language of the page, where the service worker finds it: it has no storage of its own but this.

const CACHE = "pvp-language";
const ADDRESS = "/language";

/** Keeps the language that the page uses, where the browser has a place for it. */
export async function keepLanguage(language: string): Promise<void> {
  if (!("caches" in globalThis)) return;
  await (await caches.open(CACHE)).put(ADDRESS, new Response(language));
}

/** The language that the page used last; `null` if it was never open here. */
export async function keptLanguage(): Promise<string | null> {
  const kept = await (await caches.open(CACHE)).match(ADDRESS);
  return kept === undefined ? null : kept.text();
}
