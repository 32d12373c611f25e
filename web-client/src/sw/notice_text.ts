// Puts what happened to a gate into words, for notifications of the page and of pushes alike.

export interface NoticeTexts {
  titles: { [event: string]: string };
  destructiveTitles: { [event: string]: string };
  categories: { [category: string]: string };
  risks: { [risk: string]: string };
  session(name: string): string;
  proposedBy(name: string): string;
  until(time: string): string;
}

export interface NoticeFacts {
  event: string;
  session: string;
  sessionName: string | null;
  category: string;
  risk: string;
  /** `null` if it is not known here. */
  proposer: string | null;
  deadline: string | null;
  /** `null` unless the person wants it in notifications. */
  command: string | null;
}

export interface NoticeText {
  title: string;
  body: string;
}

/** After so long, a time of day alone may be of another day. */
const SAME_DAY_MS = 12 * 3_600_000;

/** The words for it; `null` if the texts do not know what happened, or to what. */
export function noticeText(facts: NoticeFacts, texts: NoticeTexts, locale: string, now: number): NoticeText | null {
  const { event, session, sessionName, proposer, command } = facts;
  const title = entry(facts.category === "destructive" ? texts.destructiveTitles : texts.titles, event);
  const category = entry(texts.categories, facts.category);
  const risk = entry(texts.risks, facts.risk);
  if (title === null || category === null || risk === null) return null;
  const named = texts.session(sessionName === null || sessionName === session ? session : `${sessionName} (${session})`);
  // A decided command needs no description.
  if (event === "closed") return { title, body: named };
  const until = untilText(facts.deadline, texts, locale, now);
  const parts = [named, `${category}, ${risk}`, proposer === null ? null : texts.proposedBy(proposer), until, command];
  return { title, body: parts.filter((part) => part !== null).join(" · ") };
}

function untilText(deadline: string | null, texts: NoticeTexts, locale: string, now: number): string | null {
  const at = Date.parse(deadline ?? "");
  if (Number.isNaN(at)) return null;
  const day: Intl.DateTimeFormatOptions = at - now > SAME_DAY_MS ? { day: "numeric", month: "short" } : {};
  return texts.until(new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", ...day }).format(at));
}

function entry(table: { [key: string]: string }, key: string): string | null {
  return Object.hasOwn(table, key) ? (table[key] ?? null) : null;
}
