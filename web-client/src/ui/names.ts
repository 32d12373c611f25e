// The names of people as they are shown. Everybody chooses their own, so a name that could be taken
// for another one, or for the page's own words, is shown with the id, which nobody chooses.

import { escapeInvisible } from "../fold";
import type { View } from "../fold";

interface NamedPerson {
  id: string;
  name: string;
}

/** A longer name is only there to push everything else off the screen. */
const MAX_NAME = 60;

/** What the page itself calls the server, and what other programs do. */
const RESERVED = ["system", "server", "the server", "der server", "pvp", "you", "du", "someone", "jemand"];

/** Letters of other scripts, and digits, that look like a Latin letter. */
const LOOKS_LIKE: { [letter: string]: string } = {};
for (const [latin, others] of [
  ["a", "аαɑ"],
  ["b", "вьβ"],
  ["c", "сϲ"],
  ["d", "ԁ"],
  ["e", "еεєҽ"],
  ["g", "ɡց"],
  ["h", "һнհη"],
  ["j", "јϳ"],
  ["k", "кκ"],
  ["l", "iіιїıӏ1|ɩ!"],
  ["m", "мμ"],
  ["n", "пո"],
  ["o", "оοօσ0"],
  ["p", "рρ"],
  ["q", "ԛգ"],
  ["r", "гɾ"],
  ["s", "ѕ5"],
  ["t", "тτ"],
  ["u", "υսʋ"],
  ["v", "νѵ"],
  ["w", "ԝωա"],
  ["x", "хχ"],
  ["y", "уүγ"],
  ["z", "ᴢ"],
] as const) {
  for (const other of others) LOOKS_LIKE[other] = latin;
}

/** The same for names that an eye may take for each other. */
export function likeness(name: string): string {
  const plain = name.normalize("NFKC").toLowerCase().normalize("NFD").replace(/\p{M}+/gu, "");
  const latin = [...plain].map((letter) => LOOKS_LIKE[letter] ?? letter).join("");
  return latin.replaceAll("rn", "m").replaceAll("vv", "w").replace(/[\s_.'-]+/g, " ").trim();
}

const RESERVED_LIKENESSES: ReadonlySet<string> = new Set(RESERVED.map(likeness));

/** The names to show, by id. */
export function displayNames(people: Iterable<NamedPerson>): Map<string, string> {
  const shown = [...people].map(({ id, name }) => {
    const whole = escapeInvisible(name).trim();
    return { id, name: shortened(whole) || id, likeness: likeness(shortened(whole)) };
  });
  const count = new Map<string, number>();
  for (const person of shown) count.set(person.likeness, (count.get(person.likeness) ?? 0) + 1);
  const isUnclear = (person: (typeof shown)[number]) =>
    // What stands in parentheses behind a name is the page's word.
    (count.get(person.likeness) ?? 0) > 1 || RESERVED_LIKENESSES.has(person.likeness) || /[()]/.test(person.name);
  return new Map(shown.map((person) => [person.id, isUnclear(person) && person.name !== person.id ? `${person.name} (${escapeInvisible(person.id)})` : person.name]));
}

function shortened(name: string): string {
  if (name.length <= MAX_NAME) return name;
  return `${[...name.slice(0, 2 * MAX_NAME)].slice(0, MAX_NAME).join("")}…`;
}

interface KnownNames {
  /** Whether it was compared with the view since anything could have changed it. */
  isChecked: boolean;
  /** The people that the names were made of, and what they called themselves. */
  people: NamedPerson[];
  shown: ReadonlyMap<string, string>;
}

const known = new WeakMap<View, KnownNames>();

/** The names to show in a session, made again when somebody comes or is called otherwise. */
export function namesIn(view: View): ReadonlyMap<string, string> {
  const before = known.get(view);
  if (before?.isChecked === true) return before.shown;
  const people = Object.values(view.people);
  const names = before !== undefined && isMadeOf(before, people) ? before : made(people);
  // All entries of one drawing ask for the same names.
  names.isChecked = true;
  queueMicrotask(() => (names.isChecked = false));
  known.set(view, names);
  return names.shown;
}

function made(people: NamedPerson[]): KnownNames {
  return { isChecked: false, people: people.map(({ id, name }) => ({ id, name })), shown: displayNames(people) };
}

function isMadeOf(names: KnownNames, people: NamedPerson[]): boolean {
  return names.people.length === people.length && people.every(({ id, name }, at) => names.people[at]?.id === id && names.people[at]?.name === name);
}
