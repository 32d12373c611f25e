// An interactive command: everybody watches the same screen, and its driver types.

import { useEffect, useRef, useState } from "preact/hooks";
import type { TerminalSize } from "@protocol";
import type { Proposal } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { announce } from "../state/announcements";
import { nameOf } from "../stream/parts";
import { useSource } from "../stream/source";
import type { Versioned } from "../stream/source";
import { KeyInput } from "./KeyInput";
import { pieces } from "./keys";
import type { TerminalScreen } from "./screen";
import { OutputTail } from "./StaticOutput";
import { TerminalView } from "./TerminalView";
import { TouchKeys } from "./TouchKeys";
import { useScreen } from "./use_screen";

const MOST_ROWS = 40;
const FEWEST_ROWS = 8;
/** The share of the window that a terminal may take, and the height of a row. */
const WINDOW_SHARE = 0.45;
const ROW_HEIGHT = 17;

export function PtyPane({ proposal, version }: Versioned & { proposal: Proposal }) {
  const { view, live, sizes } = useSource();
  const screen = useScreen(proposal, version);
  const driver = proposal.run?.driver ?? proposal.driver;
  const drives = live !== null && proposal.state === "running" && driver !== null && view.isMe(driver);
  const size = sizes.get(proposal.id);
  useEffect(() => {
    if (screen !== null && size !== undefined) screen.resize(size);
  }, [screen, size]);
  if (screen === null) return <OutputTail proposal={proposal} version={version} />;
  return (
    <div class="terminal interactive">
      {drives ? (
        <DrivenTerminal key={proposal.id} proposal={proposal} screen={screen} connection={live} />
      ) : (
        <>
          {proposal.state === "running" && driver !== null && <p class="small quiet">{t().stream.drives(nameOf(view, driver))}</p>}
          <TerminalView screen={screen} label={t().stream.terminal(proposal.shown)} labels={null} isRunning={proposal.state === "running"} maxRows={screen.terminal.rows} hasCursor={proposal.state === "running"} />
        </>
      )}
    </div>
  );
}

function DrivenTerminal({ proposal, screen, connection }: { proposal: Proposal; screen: TerminalScreen; connection: SessionConnection }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const typeButton = useRef<HTMLButtonElement>(null);
  const [isTyping, setTyping] = useState(false);
  const [isControlHeld, setControlHeld] = useState(false);
  const [rows] = useState(() => Math.max(FEWEST_ROWS, Math.min(MOST_ROWS, Math.floor((innerHeight * WINDOW_SHARE) / ROW_HEIGHT))));
  const modes = () => screen.keyModes;

  function send(data: string): void {
    for (const piece of pieces(data)) {
      if (connection.sendNow("tool.input", { tool_proposal: proposal.id, data: piece })) continue;
      // Keys that arrive minutes later would do something else than was meant.
      announce(t().terminal.notConnected, "error");
      return;
    }
  }

  function fit(room: TerminalSize): void {
    const before = connection.terminalSizes.get(proposal.id);
    screen.resize(room);
    if (before?.columns === room.columns && before.rows === room.rows) return;
    connection.sendNow("tool.input", { tool_proposal: proposal.id, resize: room });
  }

  return (
    <>
      <div class="terminal-bar">
        <p class="small">{t().stream.youDrive}</p>
        <button ref={typeButton} class="small" aria-pressed={isTyping} title={t().terminal.leaveHint} onPointerDown={(event) => event.preventDefault()} onClick={() => (isTyping ? typeButton.current?.focus() : field.current?.focus())}>
          {isTyping ? t().terminal.leave : t().terminal.type}
        </button>
      </div>
      <TerminalView
        screen={screen}
        label={t().stream.terminal(proposal.shown)}
        labels={null}
        isRunning
        maxRows={rows}
        hasCursor={isTyping}
        keepsCursorSeen={isTyping}
        onRoom={fit}
        onPress={() => field.current?.focus()}
      />
      <KeyInput
        field={field}
        label={`${t().terminal.input(proposal.shown)} ${t().terminal.leaveHint}`}
        modes={modes}
        isControlHeld={isControlHeld}
        onControlUsed={() => setControlHeld(false)}
        onData={send}
        onLeave={() => typeButton.current?.focus()}
        onFocus={setTyping}
      />
      <TouchKeys modes={modes} isControlHeld={isControlHeld} onControl={() => setControlHeld(!isControlHeld)} onData={send} />
      <p class="small quiet">
        {t().terminal.recorded} <span class="keyboard-only">{t().terminal.leaveHint}</span>
      </p>
    </>
  );
}
