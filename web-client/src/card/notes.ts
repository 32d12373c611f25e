// Notes on a card: those of the fold in the language of the page, the policy's as they came.

import { noteOf } from "../fold";
import { t } from "../i18n";

export function noteIn(text: string): string {
  const note = noteOf(text);
  if (note === null) return text;
  const words = t().notes;
  switch (note.kind) {
    case "no_such_file":
      return words.noSuchFile;
    case "not_found":
      return words.notFound;
    case "found_times":
      return words.foundTimes(note.count);
    case "unchanged":
      return words.unchanged(note.count);
    case "edit":
      return words.edit(note.number, note.total) + (note.isEvery ? words.everyOccurrence : "");
    case "denied":
      return words.denied(note.what);
    case "no_result":
      return note.reason === "" ? words.noResult : words.noResultBecause(note.reason);
  }
}
