// The keys that touch keyboards lack.

import { t } from "../i18n";
import { encodeKey } from "./keys";
import type { KeyModes } from "./keys";

const KEYS = [
  { key: "Escape", label: "escape", shown: "Esc" },
  { key: "Tab", label: "tab", shown: "Tab" },
  { key: "ArrowLeft", label: "left", shown: "←" },
  { key: "ArrowDown", label: "down", shown: "↓" },
  { key: "ArrowUp", label: "up", shown: "↑" },
  { key: "ArrowRight", label: "right", shown: "→" },
] as const;

export function TouchKeys(props: { modes(): KeyModes; isControlHeld: boolean; onControl(): void; onData(data: string): void }) {
  // The keyboard would close if the field lost the focus.
  const keepFocus = (event: Event) => event.preventDefault();
  const press = (key: string) => {
    const modifiers = { ctrlKey: false, altKey: false, shiftKey: false, metaKey: false };
    const data = encodeKey({ key, ...modifiers }, props.modes());
    if (data !== null) props.onData(data);
  };
  return (
    <div class="touch-keys" role="toolbar" aria-label={t().terminal.keys}>
      <button aria-pressed={props.isControlHeld} onPointerDown={keepFocus} onClick={props.onControl}>
        {t().terminal.keyNames.control}
      </button>
      {KEYS.map(({ key, label, shown }) => (
        <button key={key} aria-label={t().terminal.keyNames[label]} onPointerDown={keepFocus} onClick={() => press(key)}>
          {shown}
        </button>
      ))}
    </div>
  );
}
