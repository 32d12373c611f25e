// Which screen is open, as the fragment of the address says: `#/session/blue-owl/audit`.

import { signal } from "@preact/signals";

export type SessionTab = "stream" | "people" | "history" | "rules" | "audit" | "replay" | "share";
export const SESSION_TABS: readonly SessionTab[] = ["stream", "people", "history", "rules", "audit", "replay", "share"];

export type Route =
  | { screen: "inbox" }
  | { screen: "gate"; session: string; gate: string }
  | { screen: "sessions" }
  | { screen: "session"; session: string; tab: SessionTab }
  | { screen: "settings" };

export function parseRoute(hash: string): Route {
  const words = hash.replace(/^#\/?/, "").split("/").map(decode);
  const [screen, first, second] = words;
  if (screen === "gate" && first && second) return { screen, session: first, gate: second };
  if (screen === "session" && first) {
    const tab = SESSION_TABS.find((known) => known === second) ?? "stream";
    return { screen, session: first, tab };
  }
  if (screen === "sessions" || screen === "settings") return { screen };
  return { screen: "inbox" };
}

export function routeHash(route: Route): string {
  switch (route.screen) {
    case "inbox":
      return "#/";
    case "gate":
      return `#/gate/${encodeURIComponent(route.session)}/${encodeURIComponent(route.gate)}`;
    case "session": {
      const tab = route.tab === "stream" ? "" : `/${route.tab}`;
      return `#/session/${encodeURIComponent(route.session)}${tab}`;
    }
    case "sessions":
    case "settings":
      return `#/${route.screen}`;
  }
}

function decode(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return "";
  }
}

export const route = signal<Route>(parseRoute(location.hash));
addEventListener("hashchange", () => {
  if (location.hash === "" || location.hash.startsWith("#/")) route.value = parseRoute(location.hash);
});

export function go(to: Route): void {
  const hash = routeHash(to);
  if (location.hash !== hash) location.hash = hash;
  route.value = to;
}
