// Compresses the built page once, at the best level, so that the server never has to.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, brotliDecompressSync, constants, gunzipSync, gzipSync } from "node:zlib";

const dist = join(import.meta.dirname, "dist");
const COMPRESSIBLE = /\.(html|js|css|json|webmanifest|svg|txt)$/;
const brotliParams = {
  [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
  [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
};

let plainBytes = 0;
let brotliBytes = 0;
for (const name of readdirSync(dist, { recursive: true })) {
  const path = join(dist, name);
  if (!COMPRESSIBLE.test(name) || !statSync(path).isFile()) continue;
  const plain = readFileSync(path);
  const gzip = gzipSync(plain, { level: constants.Z_BEST_COMPRESSION });
  const brotli = brotliCompressSync(plain, {
    params: { ...brotliParams, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length },
  });
  if (!gunzipSync(gzip).equals(plain) || !brotliDecompressSync(brotli).equals(plain)) {
    throw new Error(`${name} is not what was compressed`);
  }
  for (const [end, compressed] of [[".gz", gzip], [".br", brotli]]) {
    // What does not become smaller is sent as it is.
    if (compressed.length < plain.length) writeFileSync(path + end, compressed);
  }
  plainBytes += plain.length;
  brotliBytes += brotli.length;
}
console.log(`compressed ${plainBytes} bytes to ${brotliBytes}`);
