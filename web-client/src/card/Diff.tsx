// The change of a file, coloured and with marks: in one column on a phone, side by side when wide.

import { useState } from "preact/hooks";
import { t } from "../i18n";
import { hunkHeader } from "../fold";
import type { DiffHunk, DiffLine, FileChangeView } from "../fold";
import { pairedRows, unifiedRows } from "./diff_rows";
import type { NumberedLine } from "./diff_rows";
import { useMedia } from "./media";
import { noteIn } from "./notes";

/** Two columns of code need about this much. */
const WIDE = "(min-width: 64rem)";

export function Diff({ change }: { change: FileChangeView }) {
  const isWide = useMedia(WIDE);
  const [chosen, setChosen] = useState<boolean | null>(null);
  const isPaired = isWide && (chosen ?? true);
  const notes = [t().card.basis[change.basis] ?? change.basis, ...(change.notes ?? []).map(noteIn)];
  if (change.added === 0 && change.removed === 0) notes.push(t().card.noChange);
  return (
    <figure class="diff" aria-label={t().card.diff(change.path, change.added, change.removed)}>
      <figcaption>
        {notes.map((note) => (
          <p key={note} class="note">
            {note}
          </p>
        ))}
        {isWide && change.removed > 0 && (
          <button class="plain small" onClick={() => setChosen(!isPaired)}>
            {isPaired ? t().card.unified : t().card.sideBySide}
          </button>
        )}
      </figcaption>
      {change.hunks.map((hunk, index) => (isPaired && change.removed > 0 ? <PairedHunk key={index} hunk={hunk} /> : <UnifiedHunk key={index} hunk={hunk} />))}
    </figure>
  );
}

function UnifiedHunk({ hunk }: { hunk: DiffHunk }) {
  return (
    <table class="hunk" dir="ltr">
      <HunkHead hunk={hunk} columns={4} />
      <tbody>
        {unifiedRows(hunk).map((row, index) => (
          <tr key={index} class={row.line.kind}>
            <td class="number">{row.old}</td>
            <td class="number">{row.new}</td>
            <LineCells line={row.line} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function PairedHunk({ hunk }: { hunk: DiffHunk }) {
  return (
    <table class="hunk paired" dir="ltr">
      <colgroup>
        <col class="number" />
        <col class="sign" />
        <col />
        <col class="number" />
        <col class="sign" />
        <col />
      </colgroup>
      <HunkHead hunk={hunk} columns={6} />
      <tbody>
        {pairedRows(hunk).map((row, index) => (
          <tr key={index}>
            <Side side={row.left} />
            <Side side={row.right} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Side({ side }: { side: NumberedLine | null }) {
  if (side === null) return <td class="blank" colSpan={3} />;
  return (
    <>
      <td class={`number ${side.line.kind}`}>{side.number}</td>
      <LineCells line={side.line} />
    </>
  );
}

function HunkHead({ hunk, columns }: { hunk: DiffHunk; columns: number }) {
  return (
    <thead>
      <tr>
        <th colSpan={columns} scope="colgroup">
          {hunkHeader(hunk.title === undefined ? hunk : { ...hunk, title: noteIn(hunk.title) })}
        </th>
      </tr>
    </thead>
  );
}

const MARKS: { [key in DiffLine["kind"]]: string } = { added: "+", removed: "-", context: " " };

function LineCells({ line }: { line: DiffLine }) {
  return (
    <>
      <td class={`sign ${line.kind}`}>{MARKS[line.kind]}</td>
      <td class={`line ${line.kind}`}>
        {line.text}
        {line.no_newline && <span class="note"> {t().card.noNewline}</span>}
      </td>
    </>
  );
}
