// Where people type: messages to an agent, commands of their own, and commands of the page.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { escapeInvisible } from "../fold";
import { truncateLine } from "../fold/text";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import type { WaitingMessage } from "../net/outbox";
import { names } from "../ui/format";
import { Icon } from "../ui/Icon";
import { namesIn } from "../ui/names";
import { DraftNotice } from "./drafts";
import { InterruptMenu } from "./InterruptMenu";
import { ComposerModel } from "./model";
import { SLASH_COMMANDS, slashSuggestions } from "./slash";

const MAX_ROWS = 8;

const models = new WeakMap<SessionConnection, ComposerModel>();

/** The composer of a connection, which goes on while another tab is open. */
function modelOf(connection: SessionConnection, participant: string): ComposerModel {
  const known = models.get(connection);
  if (known !== undefined) return known;
  const model = new ComposerModel(connection, participant);
  models.set(connection, model);
  return model;
}

export function Composer({ connection, participant }: { connection: SessionConnection; participant: string }) {
  const model = useMemo(() => modelOf(connection, participant), [connection, participant]);
  const drafts = useMemo(() => new DraftNotice(connection), [connection]);
  const field = useRef<HTMLTextAreaElement>(null);
  const tick = connection.tick.value;
  useEffect(() => model.onViewChanged(), [model, tick]);
  useEffect(() => () => drafts.stop(), [drafts]);
  const { view } = connection;
  if (view.ended !== null) return null;
  const mayWrite = view.me === null || view.me.may_prompt || view.me.may_exec;
  const submit = () => {
    model.submit();
    drafts.typed(model.text.value);
    field.current?.focus();
  };
  return (
    <section class="composer" aria-label={t().composer.name}>
      <Typing connection={connection} tick={tick} />
      <Waiting connection={connection} model={model} />
      {model.isHelpOpen.value && <Help onClose={() => (model.isHelpOpen.value = false)} />}
      <Suggestions model={model} field={field} />
      {model.problem.value !== null && (
        <p class="composer-problem" role="alert">
          {model.problem.value}
        </p>
      )}
      <form
        class="composer-row"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        {mayWrite && <AgentChoice connection={connection} model={model} tick={tick} />}
        {mayWrite ? (
          <>
            <Field model={model} drafts={drafts} field={field} onSubmit={submit} />
            <button class="primary send" disabled={model.text.value.trim() === "" && model.queued.value === 0}>
              {t().composer.send}
            </button>
          </>
        ) : (
          <p class="may-not quiet small">{t().composer.mayNot}</p>
        )}
        <InterruptMenu connection={connection} model={model} tick={tick} />
      </form>
    </section>
  );
}

interface FieldProps {
  model: ComposerModel;
  drafts: DraftNotice;
  field: { current: HTMLTextAreaElement | null };
  onSubmit(): void;
}

function Field({ model, drafts, field, onSubmit }: FieldProps) {
  const text = model.text.value;
  const rows = Math.min(MAX_ROWS, text.split("\n", MAX_ROWS).length);
  function onKeyDown(event: KeyboardEvent): void {
    if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
    const area = event.currentTarget as HTMLTextAreaElement;
    const isRecalled =
      (event.key === "ArrowUp" && isOnFirstLine(area) && model.recallPrevious()) || (event.key === "ArrowDown" && isOnLastLine(area) && model.recallNext());
    // On a touch keyboard, the key for a new line is all there is; the button sends.
    const sends = event.key === "Enter" && !event.shiftKey && !matchMedia("(pointer: coarse)").matches;
    if (!isRecalled && !sends) return;
    event.preventDefault();
    if (sends) onSubmit();
  }
  return (
    <textarea
      ref={field}
      rows={rows}
      value={text}
      aria-label={t().composer.label}
      placeholder={t().composer.placeholder}
      autocomplete="off"
      spellcheck
      onKeyDown={onKeyDown}
      onInput={(event) => {
        model.setText(event.currentTarget.value);
        drafts.typed(event.currentTarget.value);
      }}
      onBlur={() => drafts.stop()}
    />
  );
}

/** Only from there does the arrow leave the text. */
function isOnFirstLine(area: HTMLTextAreaElement): boolean {
  return area.selectionStart === area.selectionEnd && !area.value.slice(0, area.selectionStart).includes("\n");
}

function isOnLastLine(area: HTMLTextAreaElement): boolean {
  return area.selectionStart === area.selectionEnd && !area.value.slice(area.selectionEnd).includes("\n");
}

interface WithTick {
  connection: SessionConnection;
  /** The view is changed in place; this says when. */
  tick: number;
}

/** Which agent a message goes to, when there are several. */
function AgentChoice({ connection, model }: WithTick & { model: ComposerModel }) {
  const agents = connection.view.agents();
  if (agents.length < 2) return null;
  return (
    <select class="agent-choice" aria-label={t().composer.to} value={model.recipient() ?? ""} onChange={(event) => model.setTarget(event.currentTarget.value || null)}>
      {model.recipient() === null && <option value="">{t().composer.choose}</option>}
      {agents.map((agent) => (
        <option key={agent.id} value={agent.id}>
          {namesIn(connection.view).get(agent.id) ?? escapeInvisible(agent.id)}
        </option>
      ))}
    </select>
  );
}

function Typing({ connection }: WithTick) {
  const { view } = connection;
  const people = Object.keys(view.drafts).filter((id) => !view.isMe(id));
  if (people.length === 0) return null;
  return <p class="composer-note quiet small">{t().composer.typing(names(people.map((id) => namesIn(view).get(id) ?? escapeInvisible(id))))}</p>;
}

/** What waits to be sent, and why. */
function Waiting({ connection, model }: { connection: SessionConnection; model: ComposerModel }) {
  const unsent = connection.unsent.value;
  const queued = model.queued.value;
  const isOffline = connection.state.value !== "open";
  return (
    <div class="composer-notes" role="status">
      {isOffline && unsent > 0 && <p class="composer-note small">{t().app.unsent(unsent)}</p>}
      {isOffline && <Unsent connection={connection} />}
      {queued > 0 && (
        <p class="composer-note small">
          {t().composer.queued(queued)}{" "}
          <button class="plain small" onClick={() => model.drop()}>
            {t().composer.discard}
          </button>
        </p>
      )}
    </div>
  );
}

/** Each message that waits, and how to withdraw it. */
function Unsent({ connection }: { connection: SessionConnection }) {
  const waiting = connection.waiting.value;
  if (waiting.length === 0) return null;
  return (
    <>
      <ul class="composer-unsent small" aria-label={t().composer.waitingName}>
        {waiting.map((message) => {
          const text = escapeInvisible(truncateLine(waitingText(message)));
          return (
            <li key={message.id} class="composer-note">
              <span class="mono">{text}</span>{" "}
              {message.isWritten ? (
                <span class="quiet">{t().composer.isWritten}</span>
              ) : (
                <button class="plain small" aria-label={t().composer.withdrawName(text)} onClick={() => connection.withdraw(message.id)}>
                  {t().composer.withdraw}
                </button>
              )}
            </li>
          );
        })}
      </ul>
      <p class="composer-note quiet small">{t().composer.waitingHint}</p>
    </>
  );
}

function waitingText({ type, payload }: WaitingMessage): string {
  if (type === "shell.exec" && typeof payload.command === "string") return `!${payload.command}`;
  return type === "prompt.submit" && typeof payload.content === "string" ? payload.content : t().composer.waitingOther;
}

function Suggestions({ model, field }: { model: ComposerModel; field: { current: HTMLTextAreaElement | null } }) {
  const suggestions = slashSuggestions(model.text.value);
  if (suggestions.length === 0) return null;
  return (
    <ul class="suggestions" aria-label={t().composer.commands}>
      {suggestions.map((command) => (
        <li key={command.name}>
          <button
            class="plain"
            onClick={() => {
              model.setText(command.args === "" ? `/${command.name}` : `/${command.name} `);
              field.current?.focus();
            }}
          >
            <code>
              /{command.name} {command.args}
            </code>{" "}
            <span class="quiet">{t().composer.slash[command.name]}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function Help({ onClose }: { onClose(): void }) {
  const [heading] = useState(() => t().composer.helpHeading);
  const close = useRef<HTMLButtonElement>(null);
  useEffect(() => close.current?.focus(), []);
  return (
    <div class="composer-help" role="region" aria-label={heading}>
      <div class="row">
        <h2 class="grow">{heading}</h2>
        <button class="plain" ref={close} aria-label={t().app.close} onClick={onClose}>
          <Icon name="cross" />
        </button>
      </div>
      <dl>
        {t().composer.kinds.map(([what, does]) => (
          <div key={what}>
            <dt>
              <code>{what}</code>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
        {SLASH_COMMANDS.map((command) => (
          <div key={command.name}>
            <dt>
              <code>
                /{command.name} {command.args}
              </code>
            </dt>
            <dd>{t().composer.slash[command.name]}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
