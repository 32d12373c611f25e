// Markdown from others as elements. Every element is made here from a token, so no HTML passes
// through, whatever the text says; HTML in it is shown as the text that it is.

import { Lexer } from "marked";
import type { Token, Tokens } from "marked";
import { Component } from "preact";
import type { ComponentChildren, VNode } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { safeAddress } from "./links";
import { Plain } from "./parts";

/** Longer texts are shown as they are. */
const MAX_MARKDOWN = 64 * 1024;
/** While a text grows, its last blocks are read again with every piece; longer ones only now and then. */
const MAX_GROWING = 8 * 1024;
/** So is a longer paragraph. */
const MAX_PARAGRAPH = 16 * 1024;
/** Reading a run of blanks, a word or an address takes time that grows with the square of its length. */
const TOO_LONG_RUN = /[^\S\n]{200}|\S{1000}/;
/** So does reading an item of a list, by its lines. */
const MAX_ITEM_LINES = 500;
const ITEM = /^[ \t>]*(?:[*+-]|\d{1,9}[.)])[ \t]/;
/** Deeper nesting is shown as text. */
const MAX_DEPTH = 16;
/** Finding emphasis takes time that grows with the square of the marks, so a block with more of
    them is shown as text. */
const MAX_MARKS = 400;
const MARKS = /[*_~[\]`<!]/g;
/** A line that begins so has no other purpose than to be nested. */
const TOO_NESTED = /^(?:[ \t]*[>*+-]){40}/m;

/** A text in Markdown; `isGrowing` while more of it is to come. */
export function Markdown({ text, isGrowing = false }: { text: string; isGrowing?: boolean }) {
  const growing = useRef(new GrowingMarkdown());
  const tokens = useMemo(() => (isGrowing ? growing.current.parse(text) : parseMarkdown(text)), [text, isGrowing]);
  if (tokens === null) return <Plain text={text} />;
  return (
    <div class="markdown">
      {tokens.map((token, index) => (
        <Block key={index} token={token} depth={0} />
      ))}
    </div>
  );
}

/** The blocks of a text; null if it is to be shown as it is. */
export function parseMarkdown(text: string): Token[] | null {
  if (text.length > MAX_MARKDOWN || TOO_NESTED.test(text) || hasLongItem(text)) return null;
  const lexer = new Lexer({ gfm: true, breaks: true });
  try {
    lexer.blockTokens(withLineFeeds(text), lexer.tokens);
    for (const { src, tokens } of lexer.inlineQueue) {
      if (isWorthParsing(src)) lexer.inlineTokens(src, tokens);
      else tokens.push({ type: "text", raw: src, text: src, escaped: false } satisfies Tokens.Text);
    }
  } catch {
    // Nested so deeply that it cannot be parsed.
    return null;
  }
  return lexer.tokens;
}

function withLineFeeds(text: string): string {
  return text.replace(/\r\n|\r/g, "\n");
}

/** Parses a text again and again while it grows, each time only its last blocks. */
export class GrowingMarkdown {
  /** The beginning of the text, whose blocks can no longer change. */
  private settled = "";
  private settledTokens: Token[] = [];
  /** What was parsed last, all of it. */
  private read = "";
  private readTokens: Token[] = [];

  parse(given: string): Token[] | null {
    const text = withLineFeeds(given);
    if (!text.startsWith(this.settled)) {
      this.settled = "";
      this.settledTokens = [];
    }
    if (text !== "" && text === this.read) return this.readTokens;
    if (this.isTooEarly(text)) return [...this.readTokens, { type: "plain", raw: text.slice(this.read.length) }];
    const rest = parseMarkdown(text.slice(this.settled.length));
    if (rest === null) return null;
    const tokens = [...this.settledTokens, ...rest];
    // The last block is unfinished, and what follows may belong to the one before it.
    const settling = rest.slice(0, -2);
    const length = settling.reduce((sum, token) => sum + token.raw.length, 0);
    this.settled = text.slice(0, this.settled.length + length);
    this.settledTokens = tokens.slice(0, this.settledTokens.length + settling.length);
    this.read = text;
    this.readTokens = tokens;
    return tokens;
  }

  /** Whether long blocks have grown so little that they are not worth reading again. */
  private isTooEarly(text: string): boolean {
    const known = this.read.length - this.settled.length;
    return known > MAX_GROWING && text.startsWith(this.read) && text.length - this.read.length < known / 4;
  }
}

function isWorthParsing(text: string): boolean {
  return text.length <= MAX_PARAGRAPH && !TOO_LONG_RUN.test(text) && (text.match(MARKS)?.length ?? 0) <= MAX_MARKS;
}

/** Whether so many lines follow the beginning of a list that one of its items may have too many. */
function hasLongItem(text: string): boolean {
  let lines = 0;
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line.trim() === "") lines = 0;
    else if (lines > 0 || ITEM.test(line)) lines += 1;
    if (lines > MAX_ITEM_LINES) return true;
  }
  return false;
}

/** One block. While a text grows, only its last block is drawn again. */
class Block extends Component<{ token: Token; depth: number }> {
  override shouldComponentUpdate(next: { token: Token }): boolean {
    return next.token.type !== this.props.token.type || next.token.raw !== this.props.token.raw;
  }

  override render() {
    return block(this.props.token, this.props.depth);
  }
}

function block(token: Token, depth: number): VNode | null {
  if (depth > MAX_DEPTH) return <Plain text={token.raw} />;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return heading(token as Tokens.Heading, depth);
    case "paragraph":
      return <p dir="auto">{inlines(token as Tokens.Paragraph, depth)}</p>;
    case "text":
      return <span dir="auto">{inlines(token as Tokens.Text, depth)}</span>;
    case "code":
      return <CodeBlock token={token as Tokens.Code} />;
    case "blockquote":
      return <blockquote>{blocks((token as Tokens.Blockquote).tokens, depth)}</blockquote>;
    case "list":
      return list(token as Tokens.List, depth);
    case "table":
      return table(token as Tokens.Table, depth);
    case "hr":
      return <hr />;
    case "checkbox":
      return <Checkbox isChecked={(token as Tokens.Checkbox).checked} />;
    default:
      return <Plain text={token.raw} />;
  }
}

function blocks(tokens: Token[], depth: number): ComponentChildren {
  return tokens.map((token, index) => <Block key={index} token={token} depth={depth + 1} />);
}

/** Below the headings of the page itself. */
function heading(token: Tokens.Heading, depth: number): VNode {
  const Level = `h${Math.min(6, token.depth + 2)}` as "h3";
  return <Level dir="auto">{inlines(token, depth)}</Level>;
}

function list(token: Tokens.List, depth: number): VNode {
  const items = token.items.map((item, index) => <li key={index}>{blocks(item.tokens, depth)}</li>);
  if (!token.ordered) return <ul>{items}</ul>;
  return <ol start={typeof token.start === "number" ? token.start : 1}>{items}</ol>;
}

function table(token: Tokens.Table, depth: number): VNode {
  const cell = (Name: "td" | "th") => (data: Tokens.TableCell, index: number) => (
    <Name key={index} class={data.align ?? undefined} dir="auto">
      {inlineTokens(data.tokens, depth + 1)}
    </Name>
  );
  return (
    <div class="table" role="group" tabIndex={0} aria-label={t().stream.table}>
      <table>
        <thead>
          <tr>{token.header.map(cell("th"))}</tr>
        </thead>
        <tbody>
          {token.rows.map((row, index) => (
            <tr key={index}>{row.map(cell("td"))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CodeBlock({ token }: { token: Tokens.Code }) {
  return (
    <pre dir="ltr" tabIndex={0} aria-label={t().stream.code}>
      <code>{escapeInvisible(token.text)}</code>
    </pre>
  );
}

function Checkbox({ isChecked }: { isChecked: boolean }) {
  return <span class="checkbox">{isChecked ? "☑ " : "☐ "}</span>;
}

function inlines(token: { text: string; tokens?: Token[] | undefined }, depth: number): ComponentChildren {
  return token.tokens === undefined ? decoded(token.text) : inlineTokens(token.tokens, depth + 1);
}

function inlineTokens(tokens: Token[], depth: number): ComponentChildren {
  return tokens.map((token) => inline(token, depth));
}

function inline(token: Token, depth: number): ComponentChildren {
  if (depth > MAX_DEPTH) return escapeInvisible(token.raw);
  switch (token.type) {
    case "text":
      return inlines(token as Tokens.Text, depth);
    case "escape":
      return escapeInvisible((token as Tokens.Escape).text);
    case "strong":
      return <strong>{inlineTokens((token as Tokens.Strong).tokens, depth + 1)}</strong>;
    case "em":
      return <em>{inlineTokens((token as Tokens.Em).tokens, depth + 1)}</em>;
    case "del":
      return <del>{inlineTokens((token as Tokens.Del).tokens, depth + 1)}</del>;
    case "codespan":
      return <code dir="ltr">{escapeInvisible((token as Tokens.Codespan).text)}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link address={(token as Tokens.Link).href}>{inlineTokens((token as Tokens.Link).tokens, depth + 1)}</Link>;
    case "image":
      return <Link address={(token as Tokens.Image).href}>{t().stream.image(decoded((token as Tokens.Image).text))}</Link>;
    case "checkbox":
      return <Checkbox isChecked={(token as Tokens.Checkbox).checked} />;
    default:
      return escapeInvisible(token.raw);
  }
}

/** A link beside the address that it really leads to; only the text and the address if it may not be followed. */
export function Link({ address, children }: { address: string; children: ComponentChildren }) {
  const safe = safeAddress(address);
  const shown = escapeInvisible(safe ?? address);
  if (safe === null) {
    return (
      <span>
        {children} <span class="address">({shown})</span>
      </span>
    );
  }
  const isItsOwnText = textOf(children)?.replace(/\/$/, "") === shown.replace(/^mailto:/, "").replace(/\/$/, "");
  return (
    <>
      <a href={safe} target="_blank" rel="noopener noreferrer">
        {children}
      </a>
      {!isItsOwnText && <span class="address"> ({shown})</span>}
    </>
  );
}

/** The text of a link; null if there is more in it than text, which could stand before an address and lead the eye elsewhere. */
function textOf(children: ComponentChildren): string | null {
  if (typeof children === "string") return children;
  const texts = Array.isArray(children) ? children.map(textOf) : [null];
  return texts.includes(null) ? null : texts.join("");
}

const ENTITIES: { [key: string]: string } = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " ", hellip: "…", mdash: "—", ndash: "–", copy: "©" };

/** Text with the few entities that people write, and with everything invisible written out. */
function decoded(text: string): string {
  const characters = text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,6}));/gi, (whole, decimal, hex, name) => {
    if (name !== undefined) return ENTITIES[(name as string).toLowerCase()] ?? whole;
    const code = decimal !== undefined ? Number.parseInt(decimal as string, 10) : Number.parseInt(hex as string, 16);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : (whole as string);
  });
  return escapeInvisible(characters);
}
