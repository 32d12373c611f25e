// JSON with line breaks, and otherwise as it was written: numbers keep their digits, and a key that stands
// twice stands twice.

/** More characters than this are not worth drawing. */
export const MAX_SHOWN = 50_000;

export function indented(json: string): string {
  let text = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"?|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      text += line();
    }
    text += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    if (token === "{" || token === "[" || token === ",") text += line();
    if (text.length > MAX_SHOWN) break;
  }
  return text;
}
