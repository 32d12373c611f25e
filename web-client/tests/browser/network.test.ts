// A network that drops a connection without saying so, as phones that wake up know it.

import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import type { MessagePage } from "@protocol";
import { en } from "../../src/i18n/en";
import { closeBrowser, Person, Stage } from "./stage";

/** Forwards to a port of this machine, until its sockets are frozen: they stay open, and nothing passes any more. */
class FreezingProxy {
  target = 0;
  private readonly webSockets = new Set<[Socket, Socket]>();

  private constructor(private readonly server: Server) {
    server.on("connection", (client: Socket) => this.forward(client));
  }

  static async start(): Promise<FreezingProxy> {
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new FreezingProxy(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Freezes the WebSockets of browsers that are open. Returns how many those are. */
  freeze(): number {
    for (const [client, upstream] of this.webSockets) {
      for (const socket of [client, upstream]) socket.unpipe().removeAllListeners("data").resume();
    }
    return this.webSockets.size;
  }

  close(): void {
    this.server.close();
    for (const pair of this.webSockets) for (const socket of pair) socket.destroy();
  }

  private forward(client: Socket): void {
    const upstream = connect(this.target, "127.0.0.1");
    const pair: [Socket, Socket] = [client, upstream];
    client.once("data", (request: Buffer) => {
      const head = request.toString("latin1");
      if (/^upgrade: *websocket/im.test(head) && /^origin:/im.test(head)) this.webSockets.add(pair);
      upstream.write(request);
      client.pipe(upstream);
    });
    upstream.pipe(client);
    for (const [socket, other] of [pair, [upstream, client] as const]) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        this.webSockets.delete(pair);
        other.destroy();
      });
    }
  }
}

let proxy: FreezingProxy;
let stage: Stage;

beforeEach(async () => {
  proxy = await FreezingProxy.start();
  stage = await Stage.start({ arguments: ["--public-url", proxy.url] });
  proxy.target = stage.port;
});
afterEach(async () => {
  await stage.close();
  proxy.close();
});
afterAll(closeBrowser);

test("a connection that died in the sleep is replaced when the page wakes up, and what was typed into it is sent once", async () => {
  await stage.session("train");
  const link = new URL(await stage.person("Ann", ["driver", "approver"], "train"));
  const ann = await Person.open(`${proxy.url}/${link.hash}`);
  await ann.page.getByText(en.session.connection.open as string).waitFor();
  await stage.agent("train", [{ wait: "prompt" }, { say: "heard you" }]);
  await ann.page.getByText("bot").first().waitFor();
  expect(proxy.freeze()).toBe(1);
  await ann.page.getByRole("textbox", { name: en.composer.label }).fill("typed in the tunnel");
  await ann.page.getByRole("button", { name: en.composer.send, exact: true }).click();
  await ann.page.evaluate(() => dispatchEvent(new Event("online")));
  await ann.page.getByText("heard you").waitFor();
  const { messages } = await stage.get<MessagePage>("/api/sessions/train/messages?limit=1000");
  expect(messages.filter(({ type }) => type === "prompt.submit")).toHaveLength(1);
  expect(ann.complaints).toEqual([]);
  await ann.close();
});
