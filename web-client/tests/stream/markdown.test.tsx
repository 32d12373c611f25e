// @vitest-environment happy-dom

import { render } from "preact";
import { describe, expect, test } from "vitest";
import { safeAddress } from "../../src/stream/links";
import { GrowingMarkdown, Markdown, parseMarkdown } from "../../src/stream/markdown";

function drawn(text: string): HTMLElement {
  const root = document.createElement("div");
  render(<Markdown text={text} />, root);
  return root;
}

describe("Markdown from others", () => {
  test.each([
    "[**https://bank.example/login?to=**https://evil.example](https://evil.example)",
    "[`https://bank.example `https://evil.example](https://evil.example/)",
    "[https://evil.example~~.bank.example~~](https://evil.example)",
    "[*ann@bank.example,* eve@evil.example](mailto:eve@evil.example)",
  ])("%s says where it leads", (text) => {
    const root = drawn(text);
    const href = root.querySelector("a")?.getAttribute("href") ?? "";
    expect(root.querySelector(".address")?.textContent).toBe(` (${href})`);
  });

  test("becomes elements", () => {
    const root = drawn("# Title\n\nSome **bold** and `code`.\n\n- one\n- two\n\n```sh\nls -la\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |");
    expect(root.querySelector("h3")?.textContent).toBe("Title");
    expect(root.querySelector("strong")?.textContent).toBe("bold");
    expect([...root.querySelectorAll("li")].map((item) => item.textContent)).toEqual(["one", "two"]);
    expect(root.querySelector("pre")?.textContent).toBe("ls -la");
    expect(root.querySelectorAll("td").length).toBe(2);
  });

  test.each([
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a <b onclick=alert(1)>b</b>",
    "<style>*{display:none}</style>",
    "<iframe src=//evil.example></iframe>",
    "<form action=//evil.example><input></form>",
    "<svg/onload=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "[x](<javascript:alert(1)>)",
    "<!-- <script> --><meta http-equiv=refresh content=0>",
  ])("%s stays text", (text) => {
    const root = drawn(`${text}\n\n- ${text}\n\n> ${text}\n\n| ${text.replaceAll("|", "")} |\n|-|\n`);
    const allowed = /^(DIV|P|SPAN|UL|LI|BLOCKQUOTE|TABLE|THEAD|TBODY|TR|TH|TD)$/;
    for (const element of root.querySelectorAll("*")) {
      expect(element.tagName).toMatch(allowed);
      for (const name of element.getAttributeNames()) expect(["class", "dir", "role", "tabindex", "aria-label"]).toContain(name);
    }
    expect(root.textContent).toContain(text.startsWith("&") ? "<script>" : text.startsWith("[") ? "(javascript:alert(1))" : text);
  });

  test.each([
    ["javascript:alert(1)", null],
    ["JaVaScRiPt:alert(1)", null],
    [" java\nscript:alert(1)", null],
    ["data:text/html,<script>", null],
    ["vbscript:x", null],
    ["file:///etc/passwd", null],
    ["blob:https://pvp/x", null],
    ["//evil.example", null],
    ["/api/gates", null],
    ["#token=x", null],
    ["https://user:pass@evil.example/", null],
    ["https://github.com@evil.example/", null],
    ["https://ex.example/a?b#c", "https://ex.example/a?b#c"],
    ["http://ex.example", "http://ex.example/"],
    ["https://аpple.com/", "https://xn--pple-43d.com/"],
    ["mailto:ann@ex.example", "mailto:ann@ex.example"],
  ])("an address %j may be opened as %j", (address, safe) => {
    expect(safeAddress(address)).toBe(safe);
  });

  test("a link shows where it leads and takes nothing along", () => {
    const root = drawn("[your bank](https://evil.example/login)");
    const link = root.querySelector("a");
    expect(link?.getAttribute("href")).toBe("https://evil.example/login");
    expect(link?.getAttribute("rel")).toBe("noopener noreferrer");
    expect(root.textContent).toBe("your bank (https://evil.example/login)");
  });

  test("a link whose text is another address shows the real one beside it", () => {
    expect(drawn("[https://good.example](https://evil.example)").textContent).toContain("(https://evil.example/)");
    expect(drawn("https://good.example/x").textContent).toBe("https://good.example/x");
  });

  test("an image is a link, and nothing is loaded", () => {
    const root = drawn("![chart](https://evil.example/pixel.png) ![](data:image/png;base64,AA)");
    expect(root.querySelector("img")).toBeNull();
    expect(root.querySelectorAll("a").length).toBe(1);
    expect(root.textContent).toContain("(https://evil.example/pixel.png)");
  });

  test("what an eye would not see is written out, also when it comes as an entity", () => {
    expect(drawn("a\u202eb `c\u200bd` &#8238;e\n\n```\n\u2066x\n```").textContent).toBe("a\\u{202e}b c\\u{200b}d \\u{202e}e\\u{2066}x");
  });

  test("deep nesting and endless marks are shown as they are", () => {
    expect(parseMarkdown(">".repeat(50_000))).toBeNull();
    expect(drawn(`${"> ".repeat(30)}deep`).textContent).toContain("deep");
    expect(drawn(`${"[".repeat(30)}x${"](a)".repeat(30)}`).textContent).toContain("x");
    const marks = "_a_ ".repeat(20_000);
    expect(drawn(marks).querySelector("em")).toBeNull();
    expect(drawn(marks).textContent?.trim().length).toBe(marks.trim().length);
  });

  test("a long block that grows is read again only when much has come, and as it is in the end", () => {
    const start = "# Title\n\ntext\n\n```js\n";
    const growing = new GrowingMarkdown();
    let reads = 0;
    for (let lines = 10; lines <= 4000; lines += 10) {
      const text = start + "let a;\n".repeat(lines);
      const tokens = growing.parse(text) ?? [];
      expect(tokens.map((token) => token.raw).join("")).toBe(text);
      if (text.length > 10_000 && tokens.at(-1)?.type === "code") reads += 1;
    }
    expect(reads).toBeLessThan(20);
    const whole = `${start}let a;\n\`\`\`\n\nThe *end*.\n`;
    expect(new GrowingMarkdown().parse(whole)?.map((token) => token.type)).toEqual(parseMarkdown(whole)?.map((token) => token.type));
  });

  // Reading any of these as Markdown takes minutes at the length that an answer may have, and the page would stand still.
  test.each([
    ["a long run of blanks", `a${" ".repeat(300)}b **bold**`],
    ["a long word", `${"a.".repeat(600)}@b.example **bold**`],
    ["a long address", `http://a.example/${"&a;".repeat(400)} **bold**`],
    ["a long paragraph", `${"words ".repeat(3000)} **bold**`],
  ])("%s is shown as it is", (_, text) => {
    const root = drawn(`# Title\n\n${text}`);
    expect(root.querySelector("strong, a")).toBeNull();
    expect(root.querySelector("p")?.textContent).toBe(text);
    expect(root.querySelector("h3")?.textContent).toBe("Title");
  });

  test.each([
    ["an item", "- one\n"],
    ["a numbered item", "1. one\n"],
    ["an item in a quotation", "> - one\n"],
  ])("%s with many lines is shown as it is", (_, item) => {
    expect(parseMarkdown(item + "more\n".repeat(600))).toBeNull();
    expect(parseMarkdown(`${item}${"more\n".repeat(60)}\n`.repeat(20))).not.toBeNull();
  });

  test("a growing text is parsed as the whole text is", () => {
    const text = "# One\n\nfirst *paragraph*\nwith two lines\r\n\r\n- a\n- b\n\n  still b\n\n```js\nlet x = 1;\n\nlet y;\n```\n\n| a |\n|---|\n| 1 |\n\nThe **end**.\n";
    const growing = new GrowingMarkdown();
    for (let length = 1; length <= text.length; length += 1) {
      const shape = (tokens: { type: string; raw: string }[] | null) => tokens?.map((token) => [token.type, token.raw]);
      expect(shape(growing.parse(text.slice(0, length)))).toEqual(shape(parseMarkdown(text.slice(0, length))));
    }
  });
});
