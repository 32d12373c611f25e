// Takes what the driver of an interactive command types: keys, text from an input method or a
// touch keyboard, and pastes.

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { controlCharacter, encodeKey, encodePaste, isLeaveKey } from "./keys";
import type { KeyModes } from "./keys";

/** A character that is always there, because touch keyboards delete only what they see. */
const SENTINEL = " ";

interface Props {
  field: RefObject<HTMLTextAreaElement>;
  label: string;
  /** Read when a key is pressed, because the command may change them at any time. */
  modes(): KeyModes;
  /** The next character is sent with the control key. */
  isControlHeld: boolean;
  onControlUsed(): void;
  onData(data: string): void;
  onLeave(): void;
  onFocus(hasFocus: boolean): void;
}

export function KeyInput(props: Props) {
  const isComposing = useRef(false);
  const { field } = props;
  useEffect(() => reset(field.current), []);

  function typed(text: string): void {
    if (text === "") return;
    const control = props.isControlHeld ? controlCharacter(text) : null;
    if (props.isControlHeld) props.onControlUsed();
    props.onData(control ?? text.replaceAll("\n", "\r"));
  }

  function onKeyDown(event: KeyboardEvent): void {
    if (event.isComposing || isComposing.current) return;
    if (isLeaveKey(event)) {
      event.preventDefault();
      return props.onLeave();
    }
    // Copying is worth more than an interrupt when something is selected.
    if (event.ctrlKey && event.key === "c" && getSelection()?.isCollapsed === false) return;
    // The browser pastes, and the paste event brings the text.
    if (event.ctrlKey && event.key.toLowerCase() === "v") return;
    const data = encodeKey(event, props.modes());
    if (data === null) return;
    event.preventDefault();
    props.onData(data);
  }

  function onInput(event: Event): void {
    const area = event.currentTarget as HTMLTextAreaElement;
    if (isComposing.current) return;
    if (area.value.length < SENTINEL.length) props.onData("\u007f");
    else typed(area.value.slice(SENTINEL.length));
    reset(area);
  }

  function onPaste(event: ClipboardEvent): void {
    event.preventDefault();
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (text !== "") props.onData(encodePaste(text, props.modes()));
  }

  return (
    <textarea
      class="terminal-input"
      ref={field}
      rows={1}
      tabIndex={-1}
      aria-label={props.label}
      title={t().terminal.leaveHint}
      autocapitalize="off"
      autocomplete="off"
      autocorrect="off"
      spellcheck={false}
      enterkeyhint="send"
      onKeyDown={onKeyDown}
      onInput={onInput}
      onPaste={onPaste}
      onCompositionStart={() => {
        isComposing.current = true;
      }}
      onCompositionEnd={(event) => {
        isComposing.current = false;
        typed(event.data);
        reset(event.currentTarget);
      }}
      onFocus={(event) => {
        reset(event.currentTarget);
        props.onFocus(true);
      }}
      onBlur={() => props.onFocus(false)}
    />
  );
}

function reset(area: HTMLTextAreaElement | null): void {
  if (area === null) return;
  area.value = SENTINEL;
  area.setSelectionRange(SENTINEL.length, SENTINEL.length);
}
