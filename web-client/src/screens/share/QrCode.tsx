// A QR code, drawn as one path. It is dark on light in every theme, because cameras expect that.

import { useEffect, useState } from "preact/hooks";

/** Light modules around the code, which readers need. */
const MARGIN = 4;

/** The most text that the largest code holds at this level. */
const MAX_LENGTH = 1200;

interface Modules {
  size: number;
  /** The dark ones, row by row. */
  path: string;
}

export function QrCode({ text, label }: { text: string; label: string }) {
  const [modules, setModules] = useState<Modules | null>(null);
  useEffect(() => {
    if (text.length > MAX_LENGTH) return;
    // The link is there as text too, so a code that cannot be drawn is only left out.
    modulesOf(text).then(setModules, () => setModules(null));
  }, [text]);
  if (modules === null) return null;
  const whole = modules.size + 2 * MARGIN;
  return (
    <svg class="qr" viewBox={`0 0 ${whole} ${whole}`} role="img" aria-label={label} shape-rendering="crispEdges">
      <rect width={whole} height={whole} fill="#ffffff" />
      <path d={modules.path} fill="#000000" />
    </svg>
  );
}

/** Few people invite others, so what computes the code is loaded only then. */
export async function modulesOf(text: string): Promise<Modules> {
  const { default: qrcode } = await import("qrcode-generator");
  const code = qrcode(0, "M");
  code.addData(text, "Byte");
  code.make();
  const size = code.getModuleCount();
  let path = "";
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      if (!code.isDark(row, column)) continue;
      let length = 1;
      while (column + length < size && code.isDark(row, column + length)) length += 1;
      path += `M${column + MARGIN} ${row + MARGIN}h${length}v1h-${length}z`;
      column += length;
    }
  }
  return { size, path };
}
