// The output of a command that has ended, or that has no screen: its first and last lines.

import { useMemo } from "preact/hooks";
import type { Proposal } from "../fold";
import { t } from "../i18n";
import { byteSize } from "../stream/parts";
import type { Versioned } from "../stream/source";
import { AnsiText } from "./AnsiText";
import { foldedLines, HEAD_LINES, lastLines, TAIL_LINES } from "./folded";
import type { FoldedLine } from "./folded";

export function StaticOutput({ proposal, version }: Versioned & { proposal: Proposal }) {
  const lines = useMemo(() => foldedLines(proposal.output), [proposal, version]);
  return <OutputLines lines={lines} proposal={proposal} version={version} />;
}

/** The last lines of a command that runs, while it has no screen. */
export function OutputTail({ proposal, version }: Versioned & { proposal: Proposal }) {
  const lines = useMemo(() => lastLines(proposal.output, TAIL_LINES), [proposal, version]);
  return <OutputLines lines={lines} proposal={proposal} version={version} />;
}

function OutputLines({ lines, proposal, version }: Versioned & { lines: FoldedLine[]; proposal: Proposal }) {
  return (
    <div class="printed" role="group" aria-label={t().stream.output} dir="ltr">
      {lines.map((line, index) => (
        <OutputRow key={index} line={line} proposal={proposal} version={version} />
      ))}
    </div>
  );
}

function OutputRow({ line, proposal }: Versioned & { line: FoldedLine; proposal: Proposal }) {
  if (line.kind === "folded") return <div class="output-row folded-lines">{foldedText(proposal)}</div>;
  return (
    <div class={`output-row ${line.stream}`}>
      <span class={line.stream === "stderr" ? "margin err" : "margin"}>{t().stream[line.stream]}</span>
      <span class="output-text">{line.kind === "missing" ? <em>{t().stream.missing(line.bytes)}</em> : <AnsiText line={line.line} />}</span>
    </div>
  );
}

function foldedText({ output }: Proposal): string {
  const lines = output.stdout.lines + output.stderr.lines - HEAD_LINES - TAIL_LINES;
  const size = byteSize(output.stdout.bytes + output.stderr.bytes);
  return lines > 0 ? t().stream.folded(lines, size) : t().stream.foldedPart(size);
}
