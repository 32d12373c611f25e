// The parts of a compound command, each with its own verdict.

import type { PartAssessment } from "@protocol";
import { t } from "../i18n";
import { CategoryTag, Quote } from "./Facts";

export function Parts({ parts, withReasons = false }: { parts: readonly PartAssessment[]; withReasons?: boolean }) {
  if (parts.length === 0) return null;
  return (
    <section class="parts">
      <h3>{t().card.parts}</h3>
      <ul>
        {parts.map((part, index) => (
          <li key={index}>
            <CategoryTag card={{ category: part.category, isSensitiveRead: part.category === "write" && (part.sensitive_read ?? false) }} />
            <Quote text={part.text} code />
            {withReasons && (
              <p class="small">
                <Quote text={part.reason} /> <Quote text={`[${part.rule}]`} code />
              </p>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
