// Interrupts the agents: pause, stop, stop at once.

import { useEffect, useRef, useState } from "preact/hooks";
import type { InterruptUrgency } from "@protocol";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { announce } from "../state/announcements";
import { Icon } from "../ui/Icon";
import type { ComposerModel } from "./model";

const URGENCIES: readonly InterruptUrgency[] = ["pause", "stop", "emergency"];

export function InterruptMenu({ connection, model }: { connection: SessionConnection; model: ComposerModel; tick: number }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const onPointer = (event: Event) => {
      if (!(event.target instanceof Node && box.current?.contains(event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", onPointer);
    return () => document.removeEventListener("pointerdown", onPointer);
  }, [isOpen]);
  const { view } = connection;
  if (view.me?.may_interrupt !== true || view.agents().length === 0) return null;
  const raise = (urgency: InterruptUrgency) => {
    setOpen(false);
    opener.current?.focus();
    const problem = model.interrupt(urgency, "");
    if (problem !== null) announce(problem, "error");
  };
  return (
    <div
      class="interrupt"
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !isOpen) return;
        setOpen(false);
        opener.current?.focus();
      }}
    >
      <button type="button" class="danger" ref={opener} aria-expanded={isOpen} aria-label={t().composer.interrupt} title={t().composer.interrupt} onClick={() => setOpen(!isOpen)}>
        <Icon name="stop" />
      </button>
      {isOpen && (
        <div class="interrupt-choices" role="group" aria-label={t().composer.interrupt}>
          {URGENCIES.map((urgency) => (
            <button key={urgency} type="button" class={urgency === "emergency" ? "danger primary" : ""} onClick={() => raise(urgency)}>
              {t().composer[urgency]}
              <span class="small">{t().composer.urgencies[urgency]}</span>
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
