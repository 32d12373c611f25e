// The command, verbatim: every character of it is on the screen, and none of it does anything.

import { useMemo } from "preact/hooks";
import { t } from "../i18n";
import { escapeInvisible } from "../fold";
import type { RequestedAction } from "../fold";
import { Arguments } from "./Arguments";
import { Diff } from "./Diff";
import { pieces } from "./highlight";

export function Command({ requested }: { requested: RequestedAction }) {
  return requested.call === undefined ? <CommandLine requested={requested} /> : <ToolCall requested={requested} call={requested.call} />;
}

function CommandLine({ requested }: { requested: RequestedAction }) {
  const shown = useMemo(() => pieces(requested.command, requested.assessment?.parts ?? []), [requested]);
  return (
    <pre class="command" dir="ltr" role="group" aria-label={t().card.command}>
      <code>
        {shown.map((piece, index) =>
          piece.isEscaped ? (
            <mark key={index} class="escaped">
              {piece.text}
            </mark>
          ) : (
            <span key={index} class={piece.category === null ? undefined : `part ${piece.category}`}>
              {piece.text}
            </span>
          ),
        )}
      </code>
    </pre>
  );
}

function ToolCall({ requested, call }: { requested: RequestedAction; call: NonNullable<RequestedAction["call"]> }) {
  return (
    <div class="tool-call" role="group" aria-label={t().card.call}>
      <pre class="command" dir="ltr">
        <code>{call.headline}</code>
      </pre>
      {call.change !== null && <Diff change={call.change} />}
      <Arguments list={call.arguments} />
      {(call.stated_diffs ?? []).map((stated) => (
        <section key={stated.name} class="stated">
          <p class="note">{t().card.stated(stated.name)}</p>
          <pre dir="ltr">{stated.text}</pre>
        </section>
      ))}
      <details class="as-sent">
        <summary>{t().card.asSent}</summary>
        <pre dir="ltr">{escapeInvisible(requested.command)}</pre>
      </details>
    </div>
  );
}
