// The output of a command while it runs, on a screen of its own.

import { useMemo } from "preact/hooks";
import type { Proposal } from "../fold";
import { t } from "../i18n";
import type { Versioned } from "../stream/source";
import { OutputTail } from "./StaticOutput";
import { TerminalView } from "./TerminalView";
import { useScreen } from "./use_screen";

const MAX_ROWS = 16;

export function LiveOutput({ proposal, version }: Versioned & { proposal: Proposal }) {
  const screen = useScreen(proposal, version);
  const { stdout, stderr } = t().stream;
  const labels = useMemo(() => ({ stdout, stderr }), [stdout, stderr]);
  if (screen === null) return <OutputTail proposal={proposal} version={version} />;
  return (
    <div class="terminal">
      <TerminalView
        screen={screen}
        label={t().stream.terminal(proposal.shown)}
        labels={labels}
        isRunning
        maxRows={MAX_ROWS}
        onRoom={(room) => screen.resize(room)}
      />
    </div>
  );
}
