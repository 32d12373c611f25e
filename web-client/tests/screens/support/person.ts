// Finds things on the screen as a person does: by what they are and what they are called.

import { render } from "preact";
import type { ComponentChild } from "preact";
import { act } from "preact/test-utils";

// As `index.html` has it.
document.documentElement.lang = "en";

type Role = "button" | "link" | "textbox" | "searchbox" | "combobox" | "checkbox" | "radio" | "heading" | "alert" | "status" | "img" | "listitem" | "group";

const SELECTORS: Record<Role, string> = {
  button: "button",
  link: "a[href]",
  textbox: 'input:not([type]), input[type="text"], input[type="url"], input[type="email"], input[type="password"], input[type="time"], textarea',
  searchbox: 'input[type="search"]',
  combobox: "select",
  checkbox: 'input[type="checkbox"]',
  radio: 'input[type="radio"]',
  heading: "h1, h2, h3, h4",
  alert: '[role="alert"]',
  status: '[role="status"]',
  img: '[role="img"]',
  listitem: "li",
  group: 'fieldset, [role="group"]',
};

/** What a screen reader calls an element. */
export function nameOf(element: Element): string {
  const label = element.getAttribute("aria-label");
  if (label !== null) return label;
  if (element.matches("fieldset")) return squeezed(element.querySelector("legend")?.textContent);
  if (element.matches("input, select, textarea")) {
    const around = element.closest("label");
    if (around === null) return "";
    const copy = around.cloneNode(true) as Element;
    for (const part of copy.querySelectorAll("select, input, textarea, .hint")) part.remove();
    return squeezed(copy.textContent);
  }
  return squeezed(element.textContent);
}

function squeezed(text: string | null | undefined): string {
  return (text ?? "").replace(/\s+/g, " ").trim();
}

export class Person {
  readonly root = document.createElement("div");

  /** Shows a component to this person. */
  constructor(component: ComponentChild) {
    document.body.append(this.root);
    void act(() => render(component, this.root));
  }

  leave(): void {
    void act(() => render(null, this.root));
    this.root.remove();
  }

  all(role: Role, name?: string | RegExp): HTMLElement[] {
    const found = [...this.root.querySelectorAll<HTMLElement>(SELECTORS[role])];
    return found.filter((element) => name === undefined || (typeof name === "string" ? nameOf(element) === name : name.test(nameOf(element))));
  }

  /** The one thing of this kind and name; fails if there is none, or more than one. */
  find(role: Role, name?: string | RegExp): HTMLElement {
    const [first, ...others] = this.all(role, name);
    if (first === undefined) throw new Error(`there is no ${role} ${String(name)}; there are: ${this.all(role).map(nameOf).join(" | ")}`);
    if (others.length > 0) throw new Error(`there are ${others.length + 1} of ${role} ${String(name)}`);
    return first;
  }

  has(role: Role, name?: string | RegExp): boolean {
    return this.all(role, name).length > 0;
  }

  /** Presses a button, as soon as it takes a press. */
  async press(name: string | RegExp): Promise<void> {
    const button = this.find("button", name);
    while (button.getAttribute("aria-disabled") === "true") await act(() => new Promise((resolve) => setTimeout(resolve, 20)));
    if ((button as HTMLButtonElement).disabled) throw new Error(`the button ${String(name)} cannot be pressed`);
    await act(() => button.click());
    await settled();
  }

  async type(role: "textbox" | "searchbox", name: string | RegExp, text: string): Promise<void> {
    const field = this.find(role, name) as HTMLInputElement;
    await act(() => {
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await settled();
  }

  async choose(name: string | RegExp, option: string): Promise<void> {
    const field = this.find("combobox", name) as HTMLSelectElement;
    const wanted = [...field.options].find((candidate) => squeezed(candidate.textContent) === option);
    if (wanted === undefined) throw new Error(`there is no ${option} in ${String(name)}`);
    await act(() => {
      field.value = wanted.value;
      field.dispatchEvent(new Event("change", { bubbles: true }));
    });
    await settled();
  }

  async tick(role: "checkbox" | "radio", name: string | RegExp): Promise<void> {
    const box = this.find(role, name) as HTMLInputElement;
    await act(() => box.click());
    await settled();
  }

  /** Opens what is folded. */
  async unfold(name: RegExp): Promise<void> {
    const found = [...this.root.querySelectorAll("summary")].filter((element) => name.test(squeezed(element.textContent)));
    if (found.length !== 1) throw new Error(`there are ${found.length} of ${String(name)}`);
    const details = found[0]?.parentElement as HTMLDetailsElement;
    await act(() => {
      details.open = true;
      details.dispatchEvent(new Event("toggle"));
    });
    await settled();
  }

  /** Waits until this is on the screen; only a screen that never shows it takes long. */
  async sees(text: string): Promise<void> {
    for (let round = 0; round < 500 && !this.text.includes(text); round += 1) await settled();
    if (!this.text.includes(text)) throw new Error(`never saw: ${text}`);
  }

  get text(): string {
    return squeezed(this.root.textContent);
  }

  /** What must hold on every screen, for everyone. */
  complaints(): string[] {
    const controls = [...this.root.querySelectorAll<HTMLElement>("button, a[href], input, select, textarea, summary")];
    const nameless = controls.filter((element) => nameOf(element) === "").map((element) => `no name: ${element.outerHTML}`);
    const images = [...this.root.querySelectorAll("svg, img")].filter((image) => !image.hasAttribute("aria-hidden") && !image.hasAttribute("aria-label") && !image.hasAttribute("alt"));
    const styled = [...this.root.querySelectorAll("[style]")].map((element) => `inline style: ${element.outerHTML}`);
    return [...nameless, ...images.map((image) => `no text: ${image.outerHTML}`), ...styled];
  }
}

/** Lets answers arrive and be drawn. */
export async function settled(): Promise<void> {
  for (let round = 0; round < 10; round += 1) {
    await act(async () => {
      await Promise.resolve();
      await new Promise((resolve) => setTimeout(resolve, 0));
    });
  }
}
