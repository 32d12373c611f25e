// Everything that one line tells: votes, edits, decisions, people who come and go.

import type { ComponentChildren } from "preact";
import { noteIn } from "../card/notes";
import { escapeInvisible } from "../fold";
import type { CommandVersion, TimelineItem } from "../fold";
import { t } from "../i18n";
import { duration } from "../ui/format";
import { CommandText } from "./CommandEntry";
import { CategoryTag, Head, nameOf, namesOf, Time } from "./parts";
import { Run } from "./Run";
import { useSource } from "./source";
import type { Versioned } from "./source";

type Item<Kind> = Extract<TimelineItem, { kind: Kind }>;
type Plain = Exclude<TimelineItem, { kind: "prompt" | "prompt_amended" | "thinking" | "response" | "proposed" | "executed" }>;

interface Continued {
  isContinued: boolean;
}

export function EventEntry({ item, version, isContinued }: Versioned & Continued & { item: Plain }) {
  switch (item.kind) {
    case "created":
      return <Line item={item}>{t().stream.created}</Line>;
    case "joined":
      return <Line item={item}>{item.participant_kind === "agent" ? t().stream.joinedAgent : t().stream.joined(roles(item.roles))}</Line>;
    case "left":
      return <Line item={item}>{t().stream.left + because(item.reason)}</Line>;
    case "roles_changed":
      return <RolesChanged item={item} />;
    case "attendance":
      return <Attendance item={item} />;
    case "configured":
      return <Configured item={item} />;
    case "ended":
      return <Line item={item}>{t().stream.ended + because(item.reason)}</Line>;
    case "approved":
      return <Vote item={item} mark="✓" tone="ok" verb={t().stream.approved} note={item.comment} isContinued={isContinued} />;
    case "rejected":
      return <Rejected item={item} isContinued={isContinued} />;
    case "edited":
      return <Edited item={item} version={version} />;
    case "deadline_passed":
      return <About item={item} mark="!" tone="warn" text={t().stream.deadlinePassed[item.resolution] ?? ""} isContinued={isContinued} />;
    case "resolved":
      return <Resolved item={item} version={version} isContinued={isContinued} />;
    case "trial_discarded":
      return <About item={item} mark="~" tone="warn" text={t().stream.trialDiscarded + because(noteIn(item.why))} isContinued={isContinued} />;
    case "cancel_asked":
      return <Vote item={item} mark="■" tone="warn" verb={t().stream.cancelAsked} note={item.reason} isContinued={isContinued} />;
    case "interrupted":
      return <Interrupted item={item} />;
    case "acknowledged":
      return <Line item={item}>{(t().stream.acknowledged[item.action_taken] ?? "") + because(item.reason)}</Line>;
    case "context_added":
      return <Line item={item}>{t().stream.contextAdded(escapeInvisible(item.key))}</Line>;
    case "context_updated":
      return <Line item={item}>{t().stream.contextUpdated(escapeInvisible(item.key)) + because(item.reason)}</Line>;
    case "context_removed":
      return <Line item={item}>{t().stream.contextRemoved(escapeInvisible(item.key)) + because(item.reason)}</Line>;
    case "secret_shared":
      return <SecretShared item={item} />;
    case "secret_revoked":
      return <Line item={item}>{t().stream.secretRevoked(escapeInvisible(item.key)) + because(item.reason)}</Line>;
    case "allowed":
      return <Allowed item={item} />;
    case "allow_revoked":
      return <Line item={item}>{t().stream.allowRevoked + because(item.reason)}</Line>;
    case "error":
      return <Problem item={item} />;
  }
}

function because(reason: string | null): string {
  return reason === null || reason.trim() === "" ? "" : `: ${escapeInvisible(reason)}`;
}

function roles(list: readonly string[]): string {
  return list.map((role) => t().roles[role] ?? role).join(", ") || t().app.none;
}

function Line({ item, children }: { item: TimelineItem; children: ComponentChildren }) {
  return (
    <div class="entry line">
      <Head item={item}>{children}</Head>
    </div>
  );
}

function RolesChanged({ item }: { item: Item<"roles_changed"> }) {
  const { view } = useSource();
  return <Line item={item}>{t().stream.rolesChanged(nameOf(view, item.participant), roles(item.new_roles)) + because(item.reason)}</Line>;
}

function Attendance({ item }: { item: Item<"attendance"> }) {
  const { view } = useSource();
  return (
    <div class="entry line">
      <div class="entry-head">
        <Time at={item.at} /> {t().stream.presence(nameOf(view, item.participant), t().presence[item.status] ?? item.status)}
      </div>
    </div>
  );
}

function Configured({ item }: { item: Item<"configured"> }) {
  return (
    <Line item={item}>
      {t().stream.configured + because(item.reason)}
      {item.changes !== null && <code dir="ltr"> {escapeInvisible(JSON.stringify(item.changes))}</code>}
    </Line>
  );
}

interface Marked {
  mark: string;
  tone: "ok" | "bad" | "warn";
}

function Mark({ mark, tone }: Marked) {
  return (
    <span class={`mark ${tone}`} aria-hidden="true">
      {mark}
    </span>
  );
}

/** The command that an entry is about, in a line. */
function Quote({ command }: { command: CommandVersion }) {
  if (command.shown === "") return null;
  const line = command.shown.split("\n", 1)[0] ?? "";
  const shown = line.length > 200 ? `${[...line].slice(0, 200).join("")}…` : line;
  return (
    <code class="quote" dir="ltr">
      {shown}
      {line.length < command.shown.length && " …"}
    </code>
  );
}

function Vote({ item, mark, tone, verb, note, isContinued }: Marked & Continued & { item: TimelineItem & CommandVersion; verb: string; note: string | null }) {
  return (
    <div class="entry line">
      <Head item={item}>
        <Mark mark={mark} tone={tone} /> {verb}
        {because(note)}
      </Head>
      {!isContinued && <Quote command={item} />}
    </div>
  );
}

function Rejected({ item, isContinued }: Continued & { item: Item<"rejected"> }) {
  return (
    <div class="entry line">
      <Head item={item}>
        <Mark mark="✗" tone="bad" /> {t().stream.rejected}
        {because(item.reason)}
      </Head>
      {!isContinued && <Quote command={item} />}
      {item.suggestion !== null && item.suggestion !== "" && <p>{t().stream.suggestion(escapeInvisible(item.suggestion))}</p>}
    </div>
  );
}

function Edited({ item }: Versioned & { item: Item<"edited"> }) {
  const { view } = useSource();
  const proposal = view.proposal(item.proposal);
  return (
    <div class="entry command-entry">
      <Head item={item}>
        <Mark mark="~" tone="warn" /> {t().stream.edited}
        {because(item.reason)} <CategoryTag category={item.category} isSensitiveRead={item.sensitive_read} />
      </Head>
      <CommandText id={item.id} command={item} proposal={proposal} version={proposal?.version ?? 0} />
      {item.before.shown !== "" && (
        <p class="quiet small">
          {t().stream.editedFrom}: <Quote command={item.before} />
        </p>
      )}
      {item.void_votes.length > 0 && <p class="small">{t().stream.voided(namesOf(view, item.void_votes))}</p>}
    </div>
  );
}

function About({ item, mark, tone, text, isContinued }: Marked & Continued & { item: TimelineItem & CommandVersion; text: string }) {
  return (
    <div class="entry line">
      <div class="entry-head">
        <Time at={item.at} /> <Mark mark={mark} tone={tone} /> {text}
      </div>
      {!isContinued && <Quote command={item} />}
    </div>
  );
}

function Resolved({ item, version, isContinued }: Versioned & Continued & { item: Item<"resolved"> }) {
  const { view } = useSource();
  const proposal = view.proposal(item.proposal);
  const isApproved = item.outcome === "approved";
  return (
    <div class={isApproved ? "entry command-entry" : "entry line"}>
      <div class="entry-head">
        <Time at={item.at} /> <Mark mark={isApproved ? "▶" : "■"} tone={isApproved ? "ok" : "bad"} /> <ResolvedText item={item} version={version} />
        {because(item.reason)}
      </div>
      {!isContinued && <Quote command={item} />}
      {isApproved && proposal !== undefined && <Run proposal={proposal} version={proposal.version} />}
    </div>
  );
}

function ResolvedText({ item }: Versioned & { item: Item<"resolved"> }) {
  const { view } = useSource();
  const outcome = t().outcome[item.outcome] ?? item.outcome;
  const proposal = view.proposal(item.proposal);
  const voters = proposal?.resolution?.approvals.map((approval) => approval.participant) ?? [];
  const deciders = item.by === null ? voters : [item.by];
  const how = t().stream.how[item.how] ?? "";
  if (deciders.length === 0 || how !== "") return <span>{`${outcome}${how === "" ? "" : ` ${how}`}`}</span>;
  const names = namesOf(view, deciders);
  return <span>{item.rule === null ? t().stream.decidedBy(outcome, names) : t().stream.decidedByRule(outcome, names)}</span>;
}

function Interrupted({ item }: { item: Item<"interrupted"> }) {
  const { view } = useSource();
  const whom = item.target === null ? t().stream.everyAgent : nameOf(view, item.target);
  return (
    <Line item={item}>
      <Mark mark="!" tone="warn" /> {t().stream.interrupts(t().stream.interrupted[item.urgency] ?? item.urgency, whom)}
      {because(item.message)}
    </Line>
  );
}

function SecretShared({ item }: { item: Item<"secret_shared"> }) {
  const { view } = useSource();
  return (
    <Line item={item}>
      {t().stream.secretShared(escapeInvisible(item.key))} {t().stream.withWhom(namesOf(view, item.scope))}
    </Line>
  );
}

function Allowed({ item }: { item: Item<"allowed"> }) {
  const life = duration(Date.parse(item.expires_at) - Date.parse(item.at));
  const isRead = item.read_root !== undefined;
  const what = isRead ? (item.read_root ?? "") : `${item.prefix.join(" ")} …`;
  return (
    <Line item={item}>
      <Mark mark="~" tone="warn" /> {isRead ? t().stream.allowedRead : t().stream.allowed} <code dir="ltr">{escapeInvisible(what)}</code>{" "}
      {!isRead && place(item.directory)} {t().stream.forTime(life)}
      {because(item.reason)}
    </Line>
  );
}

function place(directory: string | undefined): string {
  if (directory === undefined) return t().stream.ownDirectory;
  return directory === "*" ? t().stream.anywhere : t().stream.inDirectory(escapeInvisible(directory));
}

function Problem({ item }: { item: Item<"error"> }) {
  return (
    <div class="entry line problem-entry">
      <Head item={item}>
        <Mark mark="!" tone="bad" /> {t().stream.error}: {escapeInvisible(item.message)}
      </Head>
    </div>
  );
}
