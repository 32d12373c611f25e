// The arguments of a tool call, one below the other, nested ones indented.

import { t } from "../i18n";
import type { ArgumentView } from "../fold";

export function Arguments({ list }: { list: readonly ArgumentView[] }) {
  if (list.length === 0) return null;
  return (
    <ul class="arguments" aria-label={t().card.arguments}>
      {list.map((argument, index) => (
        <li key={index} class={`depth-${Math.min(argument.depth, 7)}`} dir="ltr">
          <span class="argument-name">{argument.name}</span>
          {argument.value.includes("\n") ? <pre>{argument.value}</pre> : <span class="argument-value">{argument.value}</span>}
        </li>
      ))}
    </ul>
  );
}
