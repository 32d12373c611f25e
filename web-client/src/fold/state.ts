// Everything that a view holds, and that the modules which fold messages change.

import type { MessageId, ParticipantId, SessionConfig } from "@protocol";
import type { Card } from "./card";
import { defaultConfig } from "./config";
import { emptyRecord } from "./decode";
import type { OwnLimits, Participant } from "./participants";
import type { Proposal } from "./proposal";
import { MAX_ITEMS, MAX_TEXT_BYTES, Timeline } from "./timeline";
import type {
  AllowRuleView,
  ClosedGateCard,
  CommandHistoryEntry,
  ContextView,
  DraftView,
  InterruptView,
  SecretView,
  SelfView,
  SessionEndView,
  ViewData,
} from "./types";

export interface ViewOptions {
  /** How many items of the timeline are kept. */
  maxItems?: number;
  /** How many bytes of prompts, thinking and responses are kept. */
  maxTextBytes?: number;
}

export class ViewState implements ViewData {
  session: ViewData["session"] = null;
  name: string | null = null;
  me: SelfView | null = null;
  config: SessionConfig = defaultConfig();
  limits: ViewData["limits"] = null;
  extensions: ViewData["extensions"] = null;
  server: string | null = null;
  head = 0;
  paused: string | null = null;
  ended: SessionEndView | null = null;
  working_directory: string | null = null;
  people = emptyRecord<Participant>();
  readonly stream: Timeline;
  gates: Card[] = [];
  commands: Proposal[] = [];
  resolved: ClosedGateCard[] = [];
  history: CommandHistoryEntry[] = [];
  rules: AllowRuleView[] = [];
  drafts: Record<ParticipantId, DraftView> = emptyRecord();
  context: Record<string, ContextView> = emptyRecord();
  secrets: Record<string, SecretView> = emptyRecord();
  interrupts: InterruptView[] = [];

  /** The head of the last welcome; messages up to it are history. @internal */
  welcomeHead = 0;
  /** What this client's token allows, if that is less than what its participant may do. @internal */
  ownLimits: OwnLimits | null = null;
  /** The commands by their ids. @internal */
  readonly commandsById = new Map<MessageId, Proposal>();
  /** The ids of the commands in the history. @internal */
  readonly inHistory = new Set<MessageId>();
  /** How many entries two of the records have, which do not know it themselves. @internal */
  peopleCount = 0;
  contextCount = 0;

  constructor(options: ViewOptions = {}) {
    this.stream = new Timeline(options.maxItems ?? MAX_ITEMS, options.maxTextBytes ?? MAX_TEXT_BYTES);
  }
}
