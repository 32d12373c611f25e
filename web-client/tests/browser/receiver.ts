// What is at the other end of a notification: a receiver of webhooks, and the push service of a browser.

import { createDecipheriv, createECDH, createHmac, hkdfSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingHttpHeaders, Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { GateNotification } from "@protocol";

export interface Received {
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** Takes every POST on a port of this machine, and keeps it. */
export class Receiver {
  private readonly received: Received[] = [];
  private waiting: (() => void) | null = null;

  private constructor(private readonly server: Server) {
    server.on("request", (request, response) => {
      const parts: Buffer[] = [];
      request.on("data", (part: Buffer) => parts.push(part));
      request.on("end", () => {
        this.received.push({ headers: request.headers, body: Buffer.concat(parts) });
        response.writeHead(201).end();
        this.waiting?.();
      });
    });
  }

  static async start(): Promise<Receiver> {
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new Receiver(server);
  }

  get host(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** The next one that nobody has taken yet. */
  async next(): Promise<Received> {
    while (this.received.length === 0) {
      await new Promise<void>((resolve) => {
        this.waiting = resolve;
      });
    }
    return this.received.shift() as Received;
  }

  close(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** The signature that a webhook must have, as Standard Webhooks says it. */
export function signatureOf({ headers, body }: Received, secret: string): string {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body.toString()}`;
  return `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
}

/** The keys of a browser's push subscription, which read what is sent to it (RFC 8291). */
export class PushKeys {
  private readonly pair = createECDH("prime256v1");
  private readonly auth = randomBytes(16);

  constructor() {
    this.pair.generateKeys();
  }

  get public(): { p256dh: string; auth: string } {
    return { p256dh: this.pair.getPublicKey("base64url"), auth: this.auth.toString("base64url") };
  }

  decrypt({ headers, body }: Received): GateNotification {
    if (headers["content-encoding"] !== "aes128gcm") throw new Error(`encoded as ${headers["content-encoding"]}`);
    const salt = body.subarray(0, 16);
    const sender = body.subarray(21, 21 + body.readUInt8(20));
    const sealed = body.subarray(21 + sender.length);
    const info = Buffer.concat([Buffer.from("WebPush: info\0"), this.pair.getPublicKey(), sender]);
    const shared = hkdfSync("sha256", this.pair.computeSecret(sender), this.auth, info, 32);
    const derive = (name: string, length: number) => Buffer.from(hkdfSync("sha256", Buffer.from(shared), salt, `Content-Encoding: ${name}\0`, length));
    const decipher = createDecipheriv("aes-128-gcm", derive("aes128gcm", 16), derive("nonce", 12));
    decipher.setAuthTag(sealed.subarray(-16));
    const padded = Buffer.concat([decipher.update(sealed.subarray(0, -16)), decipher.final()]);
    // The text ends at the delimiter of the last record, which padding follows.
    return JSON.parse(padded.subarray(0, padded.lastIndexOf(2)).toString()) as GateNotification;
  }
}
