// Keeps pictures of the page for docs/screenshots.

import { writeFileSync } from "node:fs";
import { PNG } from "pngjs";

/** Writes a picture smaller than browsers do: text on plain ground compresses best without filters. */
export function keepPicture(path: string, picture: Buffer): void {
  const options = { colorType: 2, inputHasAlpha: true, deflateLevel: 9, deflateStrategy: 0, filterType: 0 } as const;
  writeFileSync(path, PNG.sync.write(PNG.sync.read(picture), options));
}
