// The settings of a session, as people read them.

import type { QuorumRule, SessionConfig } from "@protocol";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { names } from "../ui/format";
import { spanOf } from "./parts";

type NameOf = (id: string) => string;

export function SessionConfigTable({ config, nameOf }: { config: SessionConfig; nameOf: NameOf; tick: number }) {
  const known = Object.keys(t().rules.names).filter((key) => key in config);
  const others = Object.keys(config).filter((key) => !(key in t().rules.names));
  return (
    <table class="settings">
      <thead class="visually-hidden">
        <tr>
          <th scope="col">{t().rules.setting}</th>
          <th scope="col">{t().rules.value}</th>
        </tr>
      </thead>
      <tbody>
        {[...known, ...others].map((key) => (
          <tr key={key}>
            <th scope="row">{t().rules.names[key] ?? key}</th>
            <td>{settingText(key, config[key as keyof SessionConfig], nameOf)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function settingText(key: string, value: unknown, nameOf: NameOf): string {
  if (typeof value === "boolean") return value ? t().rules.on : t().rules.off;
  if (typeof value === "number") return numberText(key, value);
  if (typeof value === "string") return t().rules.values[value] ?? escapeInvisible(value);
  if (Array.isArray(value)) return value.length === 0 ? t().rules.nothing : value.map((item) => escapeInvisible(String(item))).join(", ");
  if (isQuorum(value)) return quorumText(value, nameOf);
  if (typeof value !== "object" || value === null) return t().rules.nothing;
  const parts = Object.entries(value).flatMap(([kind, rule]) => (isQuorum(rule) ? [`${t().category[kind] ?? kind}: ${quorumText(rule, nameOf)}`] : []));
  return parts.length === 0 ? t().rules.nothing : parts.join("; ");
}

function numberText(key: string, value: number): string {
  if (!key.endsWith("_seconds")) return String(value);
  return value === 0 ? t().rules.noLimit : spanOf(value);
}

function isQuorum(value: unknown): value is QuorumRule {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

function quorumText(rule: QuorumRule, nameOf: NameOf): string {
  const words = t().rules.quorums;
  switch (rule.type) {
    case "any":
      return words.any(rule.count);
    case "all":
      return words.all;
    case "role":
      return words.role(rule.count, t().roles[rule.role] ?? rule.role);
    case "specific":
      return words.specific(names(rule.participants.map(nameOf)));
    case "majority":
      return words.majority;
  }
}
