// @vitest-environment happy-dom
// The record is checked as `pvp audit verify` does: any change to it is found.

import { beforeEach, describe, expect, it } from "vitest";
import type { ChainPage } from "@protocol";
import { Api } from "../../src/net/api";
import type { SeenHead } from "../../src/net/head_memory";
import { chainHash, checkChain, genesisHash, hex } from "../../src/screens/audit/chain";
import type { ChainResult } from "../../src/screens/audit/chain";
import { parseRawPage } from "../../src/screens/audit/raw_messages";
import { ChainedLog } from "./support/chained_log";
import { TOKEN, fakeServer } from "./support/server";
import type { FakeServer } from "./support/server";

const PATH = "/api/sessions/blue-owl";
let server: FakeServer;
let log: ChainedLog;

beforeEach(() => {
  server = fakeServer();
  log = new ChainedLog();
  log.add("session.create", { name: "ü€💣" });
  log.add("tool.propose", { description: 'a "quoted" \\ text ] } , [ {' }, { meta: '{"origin":"ab"}' });
  log.add("context.add", { key: "private" }, { isVisible: false });
  log.add("tool.output", { text: "…" }, { sign: false });
});

function serve(change: (page: ChainPage) => void = () => undefined): void {
  const limit = log.entries.length;
  const page = log.chain(0, limit);
  change(page);
  server.on("GET", `${PATH}/head`, log.head);
  server.on("GET", `${PATH}/chain?after=0&limit=${limit}`, page);
  server.on("GET", `${PATH}/messages?after=0&limit=${limit}`, log.messages(0, limit));
}

const check = (seen: SeenHead | null = null): Promise<ChainResult> =>
  checkChain({ api: new Api(TOKEN), session: "blue-owl", seen, signal: new AbortController().signal, onProgress: () => undefined, pauseMs: 0 });

describe("the chain", () => {
  it("is the one that the server's documentation has", async () => {
    const genesis = await genesisHash("blue-owl");
    expect(hex(genesis)).toBe("363ca4d52f6470aa1bd74df79272447fe5fe5ec2e55524d9299b57b1db2b61b3");
    expect(hex(await chainHash(genesis, "{}", '{"seq":1}'))).toBe("0e39e740de595f3c4e85e52132a11ab40f78f3a3213852affd3b1e2d7fabd4f7");
  });

  it("of a whole record is good, and says what was not seen and what is not signed yet", async () => {
    serve();
    expect(await check()).toEqual({
      kind: "good",
      entries: 4,
      byHash: 1,
      signed: { seq: 3, at: "2026-11-18T10:00:01.250Z", isVerified: true },
      unsigned: 1,
      key: log.key,
      seen: null,
    });
  });

  it("covers signatures that vouch for a snapshot", async () => {
    log.sign(3, "ab".repeat(32));
    serve();
    expect(await check()).toMatchObject({ kind: "good", signed: { seq: 3, isVerified: true } });
  });

  it("goes on from page to page", async () => {
    for (let more = 0; more < 1500; more += 1) log.add("prompt.submit", { content: String(more) });
    server.on("GET", `${PATH}/head`, log.head);
    for (const [after, limit] of [[0, 1000], [1000, 504]] as const) {
      server.on("GET", `${PATH}/chain?after=${after}&limit=${limit}`, log.chain(after, limit));
      server.on("GET", `${PATH}/messages?after=${after}&limit=${limit}`, log.messages(after, limit));
    }
    expect(await check()).toMatchObject({ kind: "good", entries: 1504, signed: { seq: 1504 }, unsigned: 0 });
  });

  it("agrees with what this device has seen", async () => {
    serve();
    const seen = { seq: 2, hash: log.entries[1]?.hash ?? "", key: log.key, at: 0 };
    expect(await check(seen)).toMatchObject({ kind: "good", seen: 2 });
    expect(await check({ ...seen, hash: "00".repeat(32) })).toEqual({ kind: "bad", fault: "seen", seq: 2 });
    expect(await check({ ...seen, seq: 9 })).toEqual({ kind: "bad", fault: "short", seq: 9 });
  });
});

describe("a change is found:", () => {
  it("a byte of a message", async () => {
    serve();
    const text = log.messages(0, 4).replace("quoted", "Quoted");
    server.on("GET", `${PATH}/messages?after=0&limit=4`, text);
    expect(await check()).toEqual({ kind: "bad", fault: "changed", seq: 2 });
  });

  it("a space that no reader would see", async () => {
    serve();
    server.on("GET", `${PATH}/messages?after=0&limit=4`, log.messages(0, 4).replace('"v":1,"id":"m-2"', '"v":1, "id":"m-2"'));
    expect(await check()).toEqual({ kind: "bad", fault: "changed", seq: 2 });
  });

  it("what the server keeps beside a message", async () => {
    serve((page) => Object.assign(page.entries[1] ?? {}, { meta: "" }));
    expect(await check()).toEqual({ kind: "bad", fault: "changed", seq: 2 });
  });

  it.each([
    ["a proposal", 2],
    ["the first entry", 1],
  ])("a message that is shown without what it is checked with: %s", async (_, seq) => {
    serve((page) => delete page.entries[seq - 1]?.meta);
    server.on("GET", `${PATH}/messages?after=0&limit=4`, log.messages(0, 4).replace("quoted", "forged"));
    expect(await check()).toEqual({ kind: "bad", fault: "hidden", seq });
  });

  it("streamed text that is shown without what it is checked with", async () => {
    serve((page) => delete page.entries[3]?.meta);
    expect(await check()).toEqual({ kind: "bad", fault: "hidden", seq: 4 });
  });

  it("a message that is kept back although it may be seen", async () => {
    serve();
    const [first, , last] = log.messages(0, 4).split(/(?<=\}),(?=\{"v":1,"id":"m-[24]")/);
    server.on("GET", `${PATH}/messages?after=0&limit=4`, `${first},${last}`);
    expect(await check()).toEqual({ kind: "bad", fault: "hidden", seq: 2 });
  });

  it("a hash, also of an entry that the reader may not see", async () => {
    serve((page) => Object.assign(page.entries[2] ?? {}, { hash: "11".repeat(32) }));
    expect(await check()).toEqual({ kind: "bad", fault: "changed", seq: 4 });
  });

  it("an entry that is missing", async () => {
    serve((page) => page.entries.splice(1, 1));
    expect(await check()).toEqual({ kind: "bad", fault: "gap", seq: 2 });
  });

  it("an end that is missing", async () => {
    serve();
    server.on("GET", `${PATH}/head`, { ...log.head, head: { seq: 5, hash: "22".repeat(32) } });
    server.on("GET", `${PATH}/chain?after=0&limit=5`, log.chain(0, 5));
    server.on("GET", `${PATH}/messages?after=0&limit=5`, log.messages(0, 5));
    server.on("GET", `${PATH}/chain?after=4&limit=1`, log.chain(4, 1));
    server.on("GET", `${PATH}/messages?after=4&limit=1`, log.messages(4, 1));
    expect(await check()).toEqual({ kind: "bad", fault: "short", seq: 5 });
    expect(server.asked.filter((asked) => asked.path.includes("chain?after=4"))).toHaveLength(4);
  });

  it("another end than the server states", async () => {
    serve();
    server.on("GET", `${PATH}/head`, { ...log.head, head: { seq: 4, hash: "22".repeat(32) } });
    expect(await check()).toEqual({ kind: "bad", fault: "changed", seq: 4 });
  });

  it.each([
    ["a forged signature", { signature: "00".repeat(64) }],
    ["another time", { at: "2026-11-18T10:00:02.250Z" }],
    ["another snapshot", { snapshot: "cd".repeat(32) }],
    ["an unknown key", { key: "33".repeat(32) }],
    ["a signature of another entry", { hash: "44".repeat(32) }],
    ["no signature at all", { signature: "" }],
  ])("%s", async (_, change) => {
    serve((page) => Object.assign(page.checkpoint ?? {}, change));
    expect(await check()).toEqual({ kind: "bad", fault: "signature", seq: 3 });
  });

  it("an end that an earlier key of the server signed", async () => {
    const old = log.key;
    serve();
    server.on("GET", `${PATH}/head`, { ...log.head, key: "55".repeat(32), earlier_keys: [old] });
    expect(await check()).toEqual({ kind: "bad", fault: "signature", seq: 3 });
  });

  it("an entry that should have been signed", async () => {
    log.add("gate.approve", { gate: "g" }, { sign: false });
    serve();
    expect(await check()).toEqual({ kind: "bad", fault: "unsigned", seq: 5 });
  });

  it("signatures that were taken away", async () => {
    log.signed.clear();
    serve();
    expect(await check()).toEqual({ kind: "bad", fault: "unsigned", seq: 1 });
  });
});

describe("the grant of a run", () => {
  const grant = { tool_proposal: "m-2", grant: { action: {} } };
  /** Shows the record as far as `end`, with the grant at 5 and without what it is checked with. */
  function serveUnchecked(end = log.entries.length): void {
    const page = log.chain(0, end);
    delete page.entries[4]?.meta;
    server.on("GET", `${PATH}/head`, { ...log.head, head: { seq: end, hash: log.entries[end - 1]?.hash } });
    server.on("GET", `${PATH}/chain?after=0&limit=${end}`, page);
    server.on("GET", `${PATH}/messages?after=0&limit=${end}`, log.messages(0, end));
    server.on("GET", `${PATH}/messages?after=${end}&limit=1000`, log.messages(end, 1000));
  }

  beforeEach(() => {
    log.add("tool.execute", grant, { sender: "system", meta: '{"private":{"to":"kit","nonce":"n"}}' });
  });

  it("that goes on is known by its hash", async () => {
    log.add("tool.result", { tool_proposal: "m-2", more_output: true });
    log.add("tool.result", { tool_proposal: "m-other" });
    serveUnchecked();
    expect(await check()).toMatchObject({ kind: "good", byHash: 2 });
  });

  it("that has ended is checked", async () => {
    log.add("tool.result", { tool_proposal: "m-2" });
    serve();
    expect(await check()).toMatchObject({ kind: "good", byHash: 1 });
    serveUnchecked();
    expect(await check()).toEqual({ kind: "bad", fault: "hidden", seq: 5 });
  });

  it("is checked if its trial was discarded, unless it was granted again meanwhile", async () => {
    log.add("tool.discard", { tool_proposal: "m-2", trial: { denied: [] } });
    serveUnchecked(6);
    expect(await check()).toEqual({ kind: "bad", fault: "hidden", seq: 5 });
    log.add("tool.execute", grant, { sender: "system" });
    serveUnchecked(6);
    expect(await check()).toMatchObject({ kind: "good", byHash: 2 });
  });

  it("names its command", async () => {
    log.add("tool.execute", { tool_proposal: 7 }, { sender: "system" });
    serve((page) => delete page.entries[5]?.meta);
    expect(await check()).toEqual({ kind: "bad", fault: "hidden", seq: 6 });
  });
});

it("says that an older server does not show its chain", async () => {
  serve();
  server.on("GET", `${PATH}/chain?after=0&limit=4`, { message: "there is no such route" }, 404);
  expect(await check()).toEqual({ kind: "no_route", key: log.key });
});

describe("a page of messages", () => {
  it("is cut into its messages byte for byte", () => {
    const odd = ['{"a":"\\"]}{[,","b":[{"messages":[{"x":1}]}]}', '{ "spaced" : [ ] , "n":1.0e2 }', '{"\\u0022":"\\\\"}'];
    const text = `{"next":3,"messages": [${odd.join(" ,\n")}],"head":3}`;
    expect(parseRawPage(text)).toEqual({ messages: odd, next: 3, head: 3 });
  });

  it("may be empty", () => {
    expect(parseRawPage('{"messages":[],"next":7,"head":7}')).toEqual({ messages: [], next: 7, head: 7 });
  });

  it("is not mistaken for a field of the same name deeper inside", () => {
    const text = '{"other":{"messages":[{"fake":1}]},"messages":[{"real":1}],"next":1,"head":1}';
    expect(parseRawPage(text).messages).toEqual(['{"real":1}']);
  });
});
