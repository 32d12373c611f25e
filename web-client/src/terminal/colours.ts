// The colours of terminals. Whatever a program asks for, its text stays readable: a colour that is
// too close to its background is moved away from it.

export type Rgb = readonly [red: number, green: number, blue: number];

/** A colour of the sixteen, of the 256, or any; `null` is the default. */
export type Colour = number | Rgb | null;

export const BACKGROUND: Rgb = [11, 15, 20];
export const FOREGROUND: Rgb = [230, 235, 241];

/** The least contrast of text that WCAG AA accepts. */
const LEAST_CONTRAST = 4.5;

const SIXTEEN: readonly Rgb[] = [
  [107, 118, 130],
  [255, 123, 114],
  [126, 211, 133],
  [227, 179, 65],
  [121, 184, 255],
  [210, 168, 255],
  [86, 212, 221],
  [201, 209, 217],
  [139, 148, 158],
  [255, 166, 158],
  [155, 233, 160],
  [242, 204, 96],
  [165, 214, 255],
  [226, 197, 255],
  [133, 232, 240],
  [255, 255, 255],
];

/** What a number between 0 and 255 stands for. */
export function indexedColour(index: number): Rgb {
  const named = SIXTEEN[index];
  if (named !== undefined) return named;
  if (index >= 232) {
    const grey = 8 + (Math.min(index, 255) - 232) * 10;
    return [grey, grey, grey];
  }
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return [level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)];
}

export function rgbOf(colour: Colour, otherwise: Rgb): Rgb {
  if (colour === null) return otherwise;
  return typeof colour === "number" ? indexedColour(colour) : colour;
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red},${green},${blue})`;
}

function luminance(colour: Rgb): number {
  const [red, green, blue] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one: Rgb, other: Rgb): number {
  const [dark, bright] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (bright + 0.05) / (dark + 0.05);
}

/** More pairs than this and a program draws pictures with them. */
const MAX_KNOWN_PAIRS = 4096;
const known = new Map<number, Rgb>();

/** The colour itself, or the nearest mixture with white or black that can be read on the background. */
export function readable(colour: Rgb, background: Rgb = BACKGROUND): Rgb {
  const key = packed(colour) * 0x1000000 + packed(background);
  const before = known.get(key);
  if (before !== undefined) return before;
  if (known.size >= MAX_KNOWN_PAIRS) known.clear();
  const found = moved(colour, background);
  known.set(key, found);
  return found;
}

function packed([red, green, blue]: Rgb): number {
  return red * 0x10000 + green * 0x100 + blue;
}

function moved(colour: Rgb, background: Rgb): Rgb {
  const target = contrast([255, 255, 255], background) >= contrast([0, 0, 0], background) ? 255 : 0;
  for (let share = 0; share < 1; share += 0.1) {
    const mixed = colour.map((part) => Math.round(part + (target - part) * share)) as unknown as Rgb;
    if (contrast(mixed, background) >= LEAST_CONTRAST) return mixed;
  }
  return [target, target, target];
}
