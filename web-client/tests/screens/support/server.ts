// A server that expects certain requests, and complains about any other.

import { afterEach, expect, vi } from "vitest";

export interface Asked {
  method: string;
  path: string;
  body?: unknown;
}

interface Expected extends Asked {
  status: number;
  answer: unknown;
  /** Whose request it is. */
  token: string;
}

export const TOKEN = "pvp_test_token";

export class FakeServer {
  readonly asked: Asked[] = [];
  private readonly expected: Expected[] = [];
  readonly surprises: string[] = [];

  constructor() {
    vi.stubGlobal("fetch", (path: string, init: RequestInit) => Promise.resolve(this.answer(path, init)));
  }

  /** Answers each such request, as often as it comes; a later one for the same path replaces it. */
  on(method: string, path: string, answer: unknown, status = 200, token = TOKEN): this {
    const at = this.expected.findIndex((known) => known.method === method && known.path === path);
    if (at !== -1) this.expected.splice(at, 1);
    this.expected.push({ method, path, answer, status, token });
    return this;
  }

  /** The requests other than GET so far. */
  get changes(): Asked[] {
    return this.asked.filter((asked) => asked.method !== "GET");
  }

  private answer(path: string, init: RequestInit): Response {
    const method = init.method ?? "GET";
    const headers = new Headers(init.headers);
    const asked: Asked = { method, path };
    if (typeof init.body === "string") asked.body = JSON.parse(init.body);
    this.asked.push(asked);
    const found = this.expected.find((known) => known.method === method && known.path === path);
    if (headers.get("authorization") !== `Bearer ${found?.token ?? TOKEN}`) this.surprises.push(`${method} ${path} without the token`);
    if (init.credentials !== "omit" || init.redirect !== "error") this.surprises.push(`${method} ${path} with cookies or redirects`);
    if (found === undefined) {
      this.surprises.push(`${method} ${path}`);
      return new Response(JSON.stringify({ message: "not expected" }), { status: 500 });
    }
    if (found.status === 204) return new Response(null, { status: 204 });
    return new Response(typeof found.answer === "string" ? found.answer : JSON.stringify(found.answer), { status: found.status });
  }
}

let current: FakeServer | null = null;

export function fakeServer(): FakeServer {
  current = new FakeServer();
  return current;
}

afterEach(() => {
  const surprises = current?.surprises ?? [];
  current = null;
  vi.unstubAllGlobals();
  expect(surprises).toEqual([]);
});
