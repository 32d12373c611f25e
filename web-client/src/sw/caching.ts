// What the worker keeps for later: the page and its own files, and nothing that needs a right to be read.
// On a person's own machine another program may have the same address at another time, and gets its own answers.

/** What is done with a request. */
export type Plan =
  /** Asked from the server first; the kept page if there is no answer. */
  | "page"
  /** The kept file, because its name changes with its content. */
  | "asset"
  /** Asked from the server first; the kept file if the server cannot be reached. */
  | "file"
  /** Left to the browser. */
  | "leave";

export interface RequestFacts {
  method: string;
  mode: string;
  url: string;
  hasAuthorization: boolean;
}

/**
 * `shell` is what is kept from the beginning, and `assets` the files whose names change with their contents:
 * the names alone are no sign, because the tools of other programs make the like.
 */
export function planFor(request: RequestFacts, origin: string, shell: readonly string[], assets: readonly string[]): Plan {
  const url = new URL(request.url);
  if (request.method !== "GET" || request.hasAuthorization || url.origin !== origin) return "leave";
  if (request.mode === "navigate") return url.pathname === "/" ? "page" : "leave";
  if (url.search !== "") return "leave";
  if (assets.includes(url.pathname)) return "asset";
  return shell.includes(url.pathname) && url.pathname !== "/" ? "file" : "leave";
}

/** A network that neither answers nor fails is as good as none. */
const PAGE_TIMEOUT_MS = 5000;

/** How long an answer is waited for; `null` on the person's own machine, where whatever is there may be slow. */
export function pageTimeout(hostname: string): number | null {
  return isLoopback(hostname) ? null : PAGE_TIMEOUT_MS;
}

/** Whether the kept page stands in for an answer: a proxy says so if its server is down. */
export function isReplaced(hostname: string, status: number): boolean {
  return !isLoopback(hostname) && status >= 500;
}

function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" || /^127(\.\d+){3}$/.test(hostname);
}

export interface ResponseFacts {
  ok: boolean;
  type: string;
  redirected: boolean;
  cacheControl: string | null;
}

/** Whether an answer may be kept. */
export function mayKeep(response: ResponseFacts): boolean {
  const isSecret = /\b(no-store|private)\b/i.test(response.cacheControl ?? "");
  return response.ok && response.type === "basic" && !response.redirected && !isSecret;
}
