// Small parts that the entries of the stream share.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Category } from "@protocol";
import { escapeInvisible } from "../fold";
import type { Sender, TimelineItem, View } from "../fold";
import { t } from "../i18n";
import { dayOf, names, timeOfDay } from "../ui/format";
import { namesIn } from "../ui/names";
import { useSource } from "./source";

/** The name of a participant, as text that can do nothing. */
export function nameOf(view: View, id: Sender): string {
  if (id === "system") return t().stream.server;
  return namesIn(view).get(id) ?? escapeInvisible(id);
}

export function namesOf(view: View, ids: readonly Sender[]): string {
  return names(ids.map((id) => nameOf(view, id)));
}

export function Name({ id }: { id: Sender }) {
  const { view } = useSource();
  const kind = id === "system" ? "system" : (view.people[id]?.kind ?? "human");
  return <bdi class={`name ${kind}`}>{nameOf(view, id)}</bdi>;
}

export function Time({ at }: { at: string }) {
  return (
    <time class="time" dateTime={at}>
      {timeOfDay(at)}
    </time>
  );
}

/** The day, above its first entry. */
export function Day({ at }: { at: string }) {
  return <p class="day">{dayOf(at)}</p>;
}

/** Whether two times are on different days, where the person is. */
export function isOtherDay(at: string, before: string): boolean {
  return new Date(at).toDateString() !== new Date(before).toDateString();
}

/** Who did it and when, and what it was. */
export function Head({ item, children }: { item: TimelineItem; children?: ComponentChildren }) {
  return (
    <div class="entry-head">
      <Time at={item.at} /> <Name id={item.who} /> {children}
    </div>
  );
}

export function CategoryTag({ category, isSensitiveRead }: { category: Category | null; isSensitiveRead: boolean }) {
  if (category === null) return null;
  const word = isSensitiveRead ? t().stream.sensitiveRead : t().category[category];
  return <span class={`tag ${category}`}>{word}</span>;
}

/** Text as it was written. */
export function Plain({ text }: { text: string }) {
  return (
    <p class="plain-text" dir="auto">
      {escapeInvisible(text)}
    </p>
  );
}

const LONG_CHARACTERS = 1500;
const LONG_LINES = 12;

/** A text of which only the beginning is shown until somebody asks for the rest. */
export function Clamped({ id, text, children }: { id: string; text: string; children(shown: string): ComponentChildren }) {
  const { unfolded } = useSource();
  const [isOpen, setOpen] = useState(unfolded.has(id));
  const start = useMemo(() => beginning(text), [text]);
  if (start === text) return <>{children(text)}</>;
  const toggle = () => {
    if (isOpen) unfolded.delete(id);
    else unfolded.add(id);
    setOpen(!isOpen);
  };
  return (
    <>
      {children(isOpen ? text : `${start} …`)}
      <button class="plain small" aria-expanded={isOpen} onClick={toggle}>
        {isOpen ? t().stream.showLess : t().stream.showAll}
      </button>
    </>
  );
}

function beginning(text: string): string {
  let end = -1;
  for (let line = 0; line < LONG_LINES; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end === -1) break;
  }
  const most = end === -1 ? text.length : end;
  if (most <= LONG_CHARACTERS) return text.slice(0, most);
  // A character of two units is not split.
  return [...text.slice(0, LONG_CHARACTERS + 1)].slice(0, -1).join("");
}

/** A part that is folded until somebody opens it, and remembers that. */
export function Folded({ id, summary, children }: { id: string; summary: ComponentChildren; children(): ComponentChildren }) {
  const { unfolded } = useSource();
  const [isOpen, setOpen] = useState(unfolded.has(id));
  return (
    <details
      class="folded"
      open={isOpen}
      onToggle={(event) => {
        const { open } = event.currentTarget;
        if (open) unfolded.add(id);
        else unfolded.delete(id);
        setOpen(open);
      }}
    >
      <summary>{summary}</summary>
      {isOpen && children()}
    </details>
  );
}

/** A size in bytes, such as `12 kB`. */
export function byteSize(bytes: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const options = { maximumFractionDigits: size < 10 && unit > 0 ? 1 : 0 };
  return `${size.toLocaleString(document.documentElement.lang || "en", options)} ${units[unit]}`;
}
