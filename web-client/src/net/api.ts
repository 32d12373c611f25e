// Calls of the HTTP API. Every answer that is not a success becomes an `ApiError`.

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null = null,
  ) {
    super(message);
  }

  /** Whether the token itself was refused, so that trying again with it is useless. */
  get isLoggedOut(): boolean {
    return this.status === 401;
  }
}

const DEFAULT_TIMEOUT_MS = 20_000;

export interface RequestOptions {
  body?: unknown;
  signal?: AbortSignal;
  timeoutMs?: number;
}

export class Api {
  constructor(private readonly token: string | null) {}

  get<T>(path: string, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("GET", path, options);
  }

  post<T>(path: string, body: unknown, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("POST", path, { ...options, body });
  }

  patch<T>(path: string, body: unknown, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("PATCH", path, { ...options, body });
  }

  async delete(path: string): Promise<void> {
    await this.request<unknown>("DELETE", path, {});
  }

  /** The body as text, for downloads. */
  async text(path: string): Promise<string> {
    const response = await this.fetch("GET", path, { timeoutMs: 120_000 });
    return response.text();
  }

  private async request<T>(method: string, path: string, options: RequestOptions): Promise<T> {
    const response = await this.fetch(method, path, options);
    if (response.status === 204) return undefined as T;
    return (await response.json()) as T;
  }

  private async fetch(method: string, path: string, options: RequestOptions): Promise<Response> {
    const headers = new Headers({ accept: "application/json" });
    if (this.token !== null) headers.set("authorization", `Bearer ${this.token}`);
    if (options.body !== undefined) headers.set("content-type", "application/json");
    const timeout = AbortSignal.timeout(options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
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
      throw new ApiError(0, error instanceof Error ? error.message : String(error));
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const field = (name: string) => {
    const value = typeof body === "object" && body !== null ? (body as Record<string, unknown>)[name] : null;
    return typeof value === "string" ? value : null;
  };
  return new ApiError(response.status, field("message") ?? `HTTP ${response.status}`, field("code"));
}
