// What the composer does: sends prompts and commands, keeps the results of the person's own
// commands for the next prompt, and gives back what was refused.

import { signal } from "@preact/signals";
import type { InterruptUrgency, ParticipantId } from "@protocol";
import { escapeInvisible, isOver, ShellResultQueue, shellResult } from "../fold";
import { byteLength } from "../fold/text";
import { t } from "../i18n";
import { Refused } from "../net/connection";
import type { SessionConnection } from "../net/connection";
import { freshId } from "../net/ids";
import { announce } from "../state/announcements";
import { go } from "../state/route";
import { messageOf } from "../ui/message";
import { keepChanges, recall, remembered } from "./memory";
import type { ComposerMemory, ShellRun } from "./memory";
import { mentionName, parseInput } from "./parse";
import { runSlash } from "./slash";
import type { SlashHost } from "./slash";

/** Room that the frame around a message takes. */
const FRAME_BYTES = 4096;
const DEFAULT_MESSAGE_BYTES = 1024 * 1024;
/** Own commands that are waited for at a time; beyond that the oldest is forgotten. */
const MAX_RUNS = 64;

export class ComposerModel {
  readonly text = signal("");
  /** What is wrong with what was typed. */
  readonly problem = signal<string | null>(null);
  /** How many results go with the next prompt. */
  readonly queued = signal(0);
  readonly isHelpOpen = signal(false);
  readonly target = signal<ParticipantId | null>(null);

  private readonly key: string;
  private readonly memory: ComposerMemory;
  /** What this page read or kept last. */
  private base: ComposerMemory;
  private readonly results = new ShellResultQueue();
  /** Commands of before a reload. One of them may be from so long ago that the view does not know it. */
  private readonly recalledRuns: ReadonlySet<string>;
  /** Where in the history the text comes from; null if it was typed. */
  private recalled: number | null = null;
  private typed = "";

  constructor(
    private readonly connection: SessionConnection,
    participant: ParticipantId,
  ) {
    this.key = `${participant}.${connection.session}`;
    this.memory = recall(this.key);
    this.base = structuredClone(this.memory);
    this.text.value = this.memory.text;
    this.target.value = this.memory.target;
    // Results that waited when the page was closed are made again from the commands.
    this.memory.runs = [...this.memory.queued.map((id) => ({ id, sendsResult: false })), ...this.memory.runs];
    this.memory.queued = [];
    this.recalledRuns = new Set(this.memory.runs.map((run) => run.id));
  }

  setText(text: string): void {
    this.recalled = null;
    this.show(text);
  }

  setTarget(agent: ParticipantId | null): void {
    this.target.value = agent;
    this.memory.target = agent;
    this.keep();
  }

  /** Sends what was typed, or says what is wrong with it. */
  submit(): void {
    const typed = this.text.value;
    const problem = this.perform(typed);
    this.problem.value = problem;
    if (problem !== null) return;
    if (typed.trim() !== "") this.memory.history = remembered(this.memory.history, typed.trim());
    this.setText("");
  }

  /** Shows the text sent before the one that is shown; returns whether there is one. */
  recallPrevious(): boolean {
    const { history } = this.memory;
    const next = (this.recalled ?? history.length) - 1;
    if (next < 0) return false;
    if (this.recalled === null) this.typed = this.text.value;
    this.recalled = next;
    this.show(history[next] ?? "");
    return true;
  }

  recallNext(): boolean {
    if (this.recalled === null) return false;
    const next = this.recalled + 1;
    const isEnd = next >= this.memory.history.length;
    this.recalled = isEnd ? null : next;
    this.show(isEnd ? this.typed : (this.memory.history[next] ?? ""));
    return true;
  }

  /** Looks at the view after it has changed: own commands that have ended, texts that were refused. */
  onViewChanged(): void {
    this.takeReturned();
    this.collectResults();
    this.settleSent();
  }

  interrupt(urgency: InterruptUrgency, message: string): string | null {
    if (this.connection.view.me?.may_interrupt !== true) return t().composer.mayNotInterrupt;
    this.send("interrupt.raise", { urgency, message: message === "" ? t().composer.interruptWhy : message }, t().composer.interruptSent);
    return null;
  }

  drop(): string | null {
    if (this.results.isEmpty) return t().composer.nothingQueued;
    for (const result of this.results.results) this.results.remove(result.id);
    this.noteQueue();
    return null;
  }

  /** The agent that a prompt goes to if it names none; null if that is not clear. */
  recipient(): ParticipantId | null {
    const agents = this.connection.view.agents().map((agent) => agent.id);
    const chosen = this.target.value;
    if (chosen !== null && agents.includes(chosen)) return chosen;
    return agents.length === 1 ? (agents[0] ?? null) : null;
  }

  private show(text: string): void {
    this.text.value = text;
    this.problem.value = null;
    this.memory.text = text;
    this.keep();
  }

  private keep(): void {
    keepChanges(this.key, this.base, this.memory);
    this.base = structuredClone(this.memory);
  }

  private perform(typed: string): string | null {
    const input = parseInput(typed);
    switch (input.kind) {
      case "empty":
        return this.results.isEmpty ? null : this.prompt("", null);
      case "shell":
        return this.runShell(input.line, input.sendsResult);
      case "slash":
        return runSlash(input.name, input.rest, this.host);
      case "prompt":
        return this.prompt(input.text, input.to);
    }
  }

  private prompt(text: string, to: string | null): string | null {
    const { view } = this.connection;
    if (view.me === null) return t().composer.notConnected;
    if (!view.me.may_prompt) return t().composer.mayNot;
    if (view.agents().length === 0) return t().composer.noAgent;
    const agent = to === null ? this.recipient() : this.findAgent(to);
    if (agent === null) return to === null ? t().composer.chooseAgent(this.agentNames()) : t().composer.noSuchAgent(escapeInvisible(to), this.agentNames());
    const id = freshId();
    const content = this.results.prependToPrompt(id, text);
    if (this.isTooLong(content)) {
      this.results.promptFailed(id);
      return t().composer.tooLong;
    }
    this.noteSent(id, text);
    const payload = { content, target_agent: agent, contributors: [view.me.participant], context_keys: [] };
    this.connection.send("prompt.submit", payload, id).then(
      () => this.promptAccepted(id),
      (error: unknown) => this.promptRefused(id, notDone(t().composer.notSent, error)),
    );
    return null;
  }

  private promptAccepted(id: string): void {
    this.results.promptAccepted(id);
    this.forgetSent(id);
    this.noteQueue();
  }

  private promptRefused(id: string, why: string): void {
    this.results.promptFailed(id);
    this.giveBack(id, why);
    this.noteQueue();
  }

  private runShell(line: string, sendsResult: boolean): string | null {
    const { view } = this.connection;
    if (line === "") return t().composer.bangEmpty;
    if (view.extensions?.supports_shell_exec === false || view.config.shell_exec === "off") return t().composer.noExec;
    if (view.me?.may_exec === false) return t().composer.mayNotExec;
    if (this.isTooLong(line)) return t().composer.tooLong;
    const agent = this.recipient();
    const canRun = agent !== null && view.people[agent]?.executor?.shell_exec === true;
    const id = freshId();
    this.memory.runs = [...this.memory.runs, { id, sendsResult }].slice(-MAX_RUNS);
    this.noteSent(id, `${sendsResult ? "!!" : "!"}${line}`);
    this.connection.send("shell.exec", { command: line, ...(canRun ? { executor: agent } : {}) }, id).then(
      () => {
        this.forgetSent(id);
        announce(t().composer.bangStarted);
        this.onViewChanged();
      },
      (error: unknown) => {
        this.memory.runs = this.memory.runs.filter((run) => run.id !== id);
        this.giveBack(id, notDone(t().composer.notRun, error));
      },
    );
    return null;
  }

  private isTooLong(text: string): boolean {
    const most = this.connection.view.limits?.message_bytes ?? DEFAULT_MESSAGE_BYTES;
    // In JSON a character may take six bytes; what is quoted is measured as it is sent.
    return byteLength(JSON.stringify(text)) > most - FRAME_BYTES;
  }

  private noteSent(id: string, text: string): void {
    this.memory.sent = [...this.memory.sent, { id, text }].slice(-MAX_RUNS);
    this.keep();
  }

  private forgetSent(id: string): void {
    this.memory.sent = this.memory.sent.filter((item) => item.id !== id);
    this.keep();
  }

  /** Puts back a text that was refused, or into the history if something else is being typed. */
  private giveBack(id: string, why: string): void {
    const sent = this.memory.sent.find((item) => item.id === id);
    this.forgetSent(id);
    announce(why, "error");
    if (sent === undefined || sent.text === "") return;
    const isFree = this.text.value === "";
    if (isFree) this.setText(sent.text);
    else this.memory.history = remembered(this.memory.history, sent.text);
    this.problem.value = isFree ? why : `${why} ${t().composer.inHistory}`;
    this.keep();
  }

  /** Takes back what was typed on a page before this one, and is not sent without being asked for. */
  private takeReturned(): void {
    for (const { message, why } of this.connection.takeReturned()) {
      const { id, payload } = message;
      const run = this.memory.runs.find((known) => known.id === id);
      this.memory.runs = this.memory.runs.filter((known) => known.id !== id);
      const command = typeof payload.command === "string" ? `${run?.sendsResult === true ? "!!" : "!"}${payload.command}` : null;
      const text = command ?? (typeof payload.content === "string" ? payload.content : "");
      if (!this.memory.sent.some((item) => item.id === id)) this.noteSent(id, text);
      this.giveBack(id, notDone(command === null ? t().composer.notSent : t().composer.notRun, why));
    }
  }

  /** Texts that were sent before a reload are acknowledged or refused without anybody waiting for it. */
  private settleSent(): void {
    const { view } = this.connection;
    if (this.memory.sent.length === 0) return;
    const refusals = new Map<string, string>();
    for (const item of view.stream.items.slice(-50)) {
      if (item.kind === "error" && item.related_to !== null) refusals.set(item.related_to, item.message);
    }
    for (const { id } of this.memory.sent) {
      const refusal = refusals.get(id);
      if (view.timelineItem(id) !== undefined) this.forgetSent(id);
      else if (refusal !== undefined) this.giveBack(id, t().composer.notSent(escapeInvisible(refusal)));
    }
  }

  /** Takes the results of own commands that have ended. */
  private collectResults(): void {
    const ended = this.memory.runs.filter((run) => this.hasEnded(run));
    if (ended.length === 0) return;
    this.memory.runs = this.memory.runs.filter((run) => !ended.includes(run));
    for (const run of ended) this.collect(run);
    this.noteQueue();
  }

  private hasEnded({ id }: ShellRun): boolean {
    const { view } = this.connection;
    const state = view.proposal(id)?.state;
    if (state !== undefined) return isOver(state);
    const isOnItsWay = !this.recalledRuns.has(id) || this.memory.sent.some((item) => item.id === id);
    return !isOnItsWay && view.me !== null && !view.isReplaying && this.connection.unsent.value === 0;
  }

  private collect({ id, sendsResult }: ShellRun): void {
    const proposal = this.connection.view.proposal(id);
    if (proposal === undefined) return;
    const result = shellResult(proposal);
    if (result === null) return announce(t().composer.bangNotRun, "error");
    announce(t().composer.bangDone(result.exit_code === null ? t().stream.unknownEnd : t().stream.exit(result.exit_code)));
    const lost = this.results.push(result);
    if (lost !== null) announce(t().composer.resultLost(escapeInvisible(lost.command_preview)), "error");
    if (!sendsResult) return;
    const problem = this.prompt("", null);
    if (problem !== null) this.problem.value = problem;
  }

  private noteQueue(): void {
    this.queued.value = this.results.results.length;
    this.memory.queued = this.results.results.map((result) => result.id);
    this.keep();
  }

  private findAgent(name: string): ParticipantId | null {
    const agents = this.connection.view.agents();
    const named = agents.filter((agent) => mentionName(agent.name) === name);
    // Of two that call themselves the same, only an id says which is meant.
    return agents.find((agent) => agent.id === name)?.id ?? (named.length === 1 ? (named[0]?.id ?? null) : null);
  }

  private agentNames(): string {
    return this.connection.view
      .agents()
      .map((agent) => `@${this.findAgent(mentionName(agent.name)) === agent.id ? escapeInvisible(mentionName(agent.name)) : agent.id}`)
      .join(", ");
  }

  private send(type: string, payload: object, done: string): void {
    this.connection.send(type, payload).then(
      () => announce(done),
      (error: unknown) => announce(t().app.failed(messageOf(error)), "error"),
    );
  }

  private readonly host: SlashHost = {
    open: (tab) => go({ screen: "session", session: this.connection.session, tab }),
    help: () => {
      this.isHelpOpen.value = true;
    },
    interrupt: (urgency, message) => this.interrupt(urgency, message),
    setApprovals: (count) => {
      const changes = { default_gate_quorum: { type: "any", count } };
      this.send("session.config_update", { changes, reason: t().composer.approvalsReason(count) }, t().composer.approvalsSet(count));
      return null;
    },
    end: (reason) => {
      this.send("session.end", { reason, final_state: "completed" }, t().composer.endSent);
      return null;
    },
    setTarget: (name) => {
      const agent = this.findAgent(name);
      if (agent === null) return t().composer.noSuchAgent(escapeInvisible(name), this.agentNames());
      this.setTarget(agent);
      return null;
    },
    drop: () => this.drop(),
    cancel: (reason) => this.cancelLatest(reason),
  };

  private cancelLatest(reason: string): string | null {
    const open = this.connection.view.commands.filter((command) => command.state === "waiting" || command.state === "running");
    const latest = open.at(-1);
    if (latest === undefined) return t().composer.nothingRuns;
    this.send("tool.cancel", { tool_proposal: latest.id, ...(reason === "" ? {} : { reason }) }, t().composer.cancelSent(latest.shown));
    return null;
  }
}

/** Says that something was not done, or that nobody knows whether it was. */
function notDone(words: (why: string) => string, error: unknown): string {
  return error instanceof Refused && error.code === "UNCERTAIN" ? error.message : words(messageOf(error));
}
