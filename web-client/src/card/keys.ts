// The keys of a card. They act only while the card has the focus, and never while somebody types.

export type CardKey = "approve" | "reject" | "edit" | "allow" | "allow_reading" | "why" | "next" | "previous" | "help";

/** The keys as the help lists them. */
export const CARD_KEYS: readonly [string, CardKey][] = [
  ["a", "approve"],
  ["r", "reject"],
  ["e", "edit"],
  ["P", "allow"],
  ["D", "allow_reading"],
  ["x", "why"],
  ["j", "next"],
  ["k", "previous"],
  ["?", "help"],
];

/** What a key means on a card; `null` if nothing. */
export function cardKey(event: KeyboardEvent): CardKey | null {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return null;
  return CARD_KEYS.find(([key]) => key === event.key)?.[1] ?? null;
}

/** Whether a key at this element is text. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}
