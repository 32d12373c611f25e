// A command that runs or ran: its output, how it ended, and what can be done about it.

import { useState } from "preact/hooks";
import { escapeInvisible } from "../fold";
import type { Proposal, RunResultView } from "../fold";
import { t } from "../i18n";
import { announce } from "../state/announcements";
import { second } from "../state/clock";
import { OutputTail, StaticOutput } from "../terminal/StaticOutput";
import { duration, runTime } from "../ui/format";
import { later, laterWithTexts } from "../ui/later";
import { messageOf } from "../ui/message";
import { nameOf } from "./parts";
import { useSource } from "./source";
import type { Versioned } from "./source";

/** Most who follow a link see no terminal. Until it is loaded, and without it, output is drawn from its text. */
const LiveOutput = later(async () => (await import("../terminal/LiveOutput")).LiveOutput, OutputTail);
const PtyPane = laterWithTexts(async () => (await import("../terminal/PtyPane")).PtyPane, OutputTail);
const OutputViewer = laterWithTexts(async () => (await import("../terminal/OutputViewer")).OutputViewer);

export function Run({ proposal, version }: Versioned & { proposal: Proposal }) {
  if (proposal.run === null && proposal.finish === null) return null;
  return (
    <div class="run">
      <Output proposal={proposal} version={version} />
      <div class="run-state">
        <State proposal={proposal} version={version} />
        <WholeOutput proposal={proposal} version={version} />
        <StopButton proposal={proposal} version={version} />
      </div>
    </div>
  );
}

function Output({ proposal, version }: Versioned & { proposal: Proposal }) {
  if (proposal.mode === "pty") return <PtyPane proposal={proposal} version={version} />;
  const { stdout, stderr } = proposal.output;
  if (stdout.bytes + stderr.bytes === 0) return proposal.finish === null ? null : <p class="quiet small">{t().stream.noOutput}</p>;
  return proposal.state === "running" ? <LiveOutput proposal={proposal} version={version} /> : <StaticOutput proposal={proposal} version={version} />;
}

function State({ proposal }: Versioned & { proposal: Proposal }) {
  const { view } = useSource();
  const { finish, run } = proposal;
  if (finish !== null) return <p class={finish.success ? "state ok" : "state bad"}>{resultText(finish)}</p>;
  if (proposal.state !== "running" || run === null) return <p class="state">{t().state[proposal.state]}</p>;
  const cleared = run.cleared_by === null ? "" : `, ${t().stream.clearedBy[run.cleared_by] ?? ""}`;
  return (
    <p class="state">
      <RunningFor since={run.started_at} isTrial={run.cleared_by === "tried"} /> {t().stream.on(nameOf(view, run.executor))}
      {cleared}
    </p>
  );
}

function RunningFor({ since, isTrial }: { since: string; isTrial: boolean }) {
  const source = useSource();
  // Read so that the time goes on while nothing else happens.
  void second.value;
  const time = duration(source.now() - Date.parse(since));
  return <span>{isTrial ? t().stream.trying(time) : t().stream.running(time)}</span>;
}

/** How a run ended, in a line. */
export function resultText(finish: RunResultView): string {
  const parts = [`${endText(finish)}, ${runTime(finish.duration_ms)}`];
  if (finish.error !== null && finish.error !== "") parts.push(escapeInvisible(finish.error));
  if (finish.kill_reason !== null && finish.kill_reason !== finish.error) parts.push(escapeInvisible(finish.kill_reason));
  if (finish.truncated) parts.push(t().stream.truncated);
  if (finish.attested === true && !finish.outcome_unknown) parts.push(t().stream.attested);
  return parts.join(" · ");
}

function endText(finish: RunResultView): string {
  if (finish.not_run === true) return t().stream.notRun;
  if (finish.outcome_unknown) return t().stream.unknownEnd;
  if (finish.exit_code !== null) return t().stream.exit(finish.exit_code);
  if (finish.signal !== null) return t().stream.signal(escapeInvisible(finish.signal));
  if (finish.success) return t().stream.done;
  return finish.returned_value === true ? t().stream.failed : t().stream.notRun;
}

function WholeOutput({ proposal, version }: Versioned & { proposal: Proposal }) {
  const [isOpen, setOpen] = useState(false);
  const { stdout, stderr } = proposal.output;
  if (stdout.bytes + stderr.bytes === 0) return null;
  return (
    <>
      <button class="plain small" onClick={() => setOpen(true)}>
        {t().stream.fullOutput}
      </button>
      {isOpen && <OutputViewer proposal={proposal} version={version} onClose={() => setOpen(false)} />}
    </>
  );
}

/** Stops a command that runs, or withdraws one's own that waits. */
export function StopButton({ proposal }: Versioned & { proposal: Proposal }) {
  const { live, view } = useSource();
  const [isSent, setSent] = useState(false);
  const isMine = proposal.proposer !== null && view.isMe(proposal.proposer);
  const isRunning = proposal.state === "running";
  const mayStop = isMine || (isRunning && view.me?.may_interrupt === true);
  if (live === null || !mayStop || !(isRunning || proposal.state === "waiting")) return null;
  const stop = () => {
    setSent(true);
    live.send("tool.cancel", { tool_proposal: proposal.id }).catch((error: unknown) => {
      setSent(false);
      announce(t().app.failed(messageOf(error)), "error");
    });
  };
  return (
    <button class="danger small" disabled={isSent} onClick={stop}>
      {isRunning ? t().stream.stop : t().stream.withdraw}
    </button>
  );
}
