// Calls of the HTTP API. Every answer that is not a success becomes an `ApiError`.

import { parseJson } from "../fold/json";
import { escapeInvisible, truncateLine } from "../fold/text";
import { t, wordsAreHere } from "../i18n";
import { observeServerDate } from "./server_clock";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null = null,
  ) {
    // The server's words may quote those of others.
    super(shownWords(message));
  }

  /** Whether the token itself was refused, so that trying again with it is useless. */
  get isLoggedOut(): boolean {
    return this.status === 401;
  }
}

/** What a server says, as text that can do nothing and leaves room for the rest of the page. */
export function shownWords(message: string): string {
  return escapeInvisible(truncateLine(message));
}

const DEFAULT_TIMEOUT_MS = 20_000;

export interface RequestOptions {
  body?: unknown;
  signal?: AbortSignal;
  timeoutMs?: number;
  /** Keeps numbers as they were sent where JavaScript would round them: people read and approve them. */
  exactNumbers?: boolean;
}

/** Makes sure that the server is the one that the token is for. */
export interface TokenGuard {
  confirm(): Promise<void>;
  doubt(): void;
}

export class Api {
  constructor(
    private readonly token: string | null,
    private readonly guard: TokenGuard | null = null,
  ) {}

  get<T>(path: string, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("GET", path, options);
  }

  post<T>(path: string, body: unknown, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("POST", path, { ...options, body });
  }

  patch<T>(path: string, body: unknown, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("PATCH", path, { ...options, body });
  }

  put<T>(path: string, body: unknown, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("PUT", path, { ...options, body });
  }

  async delete(path: string): Promise<void> {
    await this.request<unknown>("DELETE", path, {});
  }

  /** The body as text, for downloads. */
  async text(path: string): Promise<string> {
    const response = await this.fetch("GET", path, { timeoutMs: 120_000 });
    return bodyOf(response);
  }

  private async request<T>(method: string, path: string, options: RequestOptions): Promise<T> {
    const response = await this.fetch(method, path, options);
    if (response.status === 204) return undefined as T;
    const body = await bodyOf(response);
    const value = options.exactNumbers === true ? parseJson(body) : parsed(body);
    if (value !== undefined) return value as T;
    await wordsAreHere;
    throw new ApiError(response.status, t().net.notJson);
  }

  private async fetch(method: string, path: string, options: RequestOptions): Promise<Response> {
    const headers = new Headers({ accept: "application/json" });
    if (this.token !== null) headers.set("authorization", `Bearer ${this.token}`);
    if (options.body !== undefined) headers.set("content-type", "application/json");
    const timeout = AbortSignal.timeout(options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
    await this.guard?.confirm();
    let response: Response;
    try {
      response = await fetch(path, {
        method,
        headers,
        signal,
        body: options.body === undefined ? null : JSON.stringify(options.body),
        credentials: "omit",
        cache: "no-store",
        redirect: "error",
        referrerPolicy: "no-referrer",
      });
    } catch (error) {
      this.guard?.doubt();
      throw await unanswered(error);
    }
    observeServerDate(response.headers.get("date"));
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}

/** The browser's own words for it are neither in the person's language nor of any help. */
async function unanswered(error: unknown): Promise<ApiError> {
  await wordsAreHere;
  const isLate = error instanceof Error && error.name === "TimeoutError";
  return new ApiError(0, isLate ? t().net.tooSlow : t().net.unreachable);
}

/** The body, which may break off. */
function bodyOf(response: Response): Promise<string> {
  return response.text().catch(async (error: unknown) => {
    throw await unanswered(error);
  });
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  await wordsAreHere;
  const body: unknown = await response.json().catch(() => null);
  const field = (name: string) => {
    const value = typeof body === "object" && body !== null ? (body as Record<string, unknown>)[name] : null;
    return typeof value === "string" ? value : null;
  };
  return new ApiError(response.status, field("message") ?? t().net.status(response.status), field("code"));
}
