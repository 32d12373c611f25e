// What people ask of their system: less motion, and its own colours.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { BrowserContextOptions } from "playwright-core";
import { closeBrowser, Person, PHONE, Stage } from "./stage";

let stage: Stage;
let card: string;
let stream: string;

beforeAll(async () => {
  stage = await Stage.start();
  const session = await stage.session("calm");
  await stage.agent(session, [{ shell: "touch a" }]);
  const [gate] = await stage.gates(session, 1);
  stream = await stage.person("Ann", ["approver", "driver"], session);
  card = `${await stage.person("Bob", ["approver"], session)}&gate=${gate?.gate}`;
});
afterAll(async () => {
  await closeBrowser();
  await stage.close();
});

/** How long a card takes to appear, and other movements of the page, in seconds. */
async function movement(options: BrowserContextOptions): Promise<number[]> {
  const person = await Person.open(card, { ...PHONE, ...options });
  await person.page.locator("section.card .decision-bar").waitFor();
  const seconds = await person.page.evaluate(() => {
    // As an answer that is being written, and a folded part, are drawn.
    document.querySelector("main")?.insertAdjacentElement("beforeend", Object.assign(document.createElement("span"), { className: "writing" }));
    const styles = [".deck-card > .card", ".writing"].map((selector) => getComputedStyle(document.querySelector(selector) as Element));
    return styles.map((style) => Number.parseFloat(style.animationDuration));
  });
  await person.close();
  return seconds;
}

test("nothing moves for those who ask for less motion", async () => {
  expect(await movement({ reducedMotion: "no-preference" })).toEqual([0.18, 1]);
  for (const seconds of await movement({ reducedMotion: "reduce" })) expect(seconds).toBeLessThan(0.001);
});

test("what a ground tells can be seen in the colours of the system", async () => {
  const person = await Person.open(stream, { forcedColors: "active" });
  await person.page.locator(".dot.open").waitFor();
  const seen = await person.page.evaluate(() => {
    const style = (selector: string) => getComputedStyle(document.querySelector(selector) as Element);
    return {
      dot: style(".dot.open").backgroundColor !== style("body").backgroundColor,
      tag: style(".tag").borderTopStyle,
      tab: style("nav.tabs [aria-current]").outlineStyle,
    };
  });
  expect(seen).toEqual({ dot: true, tag: "solid", tab: "solid" });
  expect(person.complaints).toEqual([]);
  await person.close();
});
