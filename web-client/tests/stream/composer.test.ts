// @vitest-environment happy-dom

import { beforeEach, describe, expect, test } from "vitest";
import { recall } from "../../src/composer/memory";
import { ComposerModel } from "../../src/composer/model";
import { mentionName, parseInput } from "../../src/composer/parse";
import { SLASH_COMMANDS, slashSuggestions } from "../../src/composer/slash";
import { de } from "../../src/i18n/de";
import { en } from "../../src/i18n/en";
import { Refused } from "../../src/net/connection";
import { announcements } from "../../src/state/announcements";
import { route } from "../../src/state/route";
import { Feed } from "./feed";

let feed: Feed;
let model: ComposerModel;

beforeEach(() => {
  localStorage.clear();
  announcements.value = [];
  feed = new Feed().begin();
  model = new ComposerModel(feed.connection, "ann");
});

function submit(text: string): void {
  model.setText(text);
  model.submit();
}

/** The page is closed and opened again; what was sent is still on its way. */
function reopened(): ComposerModel {
  return new ComposerModel(feed.connection, "ann");
}

function runsShell(id: string, line: string, exit: number, output: string): void {
  feed.deliver("shell.exec", { command: line, executor: "bot", origin: "ui_bang" }, { id, sender: "ann" });
  const action = { command: { form: "login_shell", line }, mode: "normal" };
  const grant = { id: `${id}-grant`, executor: "bot", action, digest: "00".repeat(32), expires_at: "2026-01-01T01:00:00.000Z", cleared_by: "direct" };
  feed.deliver("tool.execute", { tool_proposal: id, approved_by: [], grant }, { ref: id });
  feed.print(id, output);
  feed.finish(id, exit);
}

describe("what is typed", () => {
  test.each([
    ["", { kind: "empty" }],
    ["  \n ", { kind: "empty" }],
    ["hello", { kind: "prompt", text: "hello", to: null }],
    [" two\nlines ", { kind: "prompt", text: "two\nlines", to: null }],
    ["!ls -la", { kind: "shell", line: "ls -la", sendsResult: false }],
    ["!! git diff", { kind: "shell", line: "git diff", sendsResult: true }],
    ["!", { kind: "shell", line: "", sendsResult: false }],
    ["/help", { kind: "slash", name: "help", rest: "" }],
    ["/interrupt stop now", { kind: "slash", name: "interrupt", rest: "stop now" }],
    ["/etc/passwd is odd", { kind: "prompt", text: "/etc/passwd is odd", to: null }],
    ["/ a", { kind: "prompt", text: "/ a", to: null }],
    ["@Bot do it", { kind: "prompt", text: "do it", to: "Bot" }],
  ])("%j is %j", (text, input) => {
    expect(parseInput(text)).toEqual(input);
  });

  test("a name with spaces can be typed", () => {
    expect(mentionName(" Night  Bot ")).toBe("Night-Bot");
  });

  test("suggestions are the commands that begin so", () => {
    expect(slashSuggestions("/p").map((command) => command.name)).toEqual(["people"]);
    expect(slashSuggestions("/").length).toBe(SLASH_COMMANDS.length);
    expect(slashSuggestions("/people x")).toEqual([]);
    expect(slashSuggestions("text")).toEqual([]);
  });

  test("every command is explained in every language", () => {
    for (const { name } of SLASH_COMMANDS) for (const words of [en, de]) expect(words.composer.slash[name], name).toBeTruthy();
  });
});

describe("prompts", () => {
  test("go to the only agent and leave the field", () => {
    submit("build it");
    expect(feed.last("prompt.submit")?.payload).toEqual({ content: "build it", target_agent: "bot", contributors: ["ann"], context_keys: [] });
    expect(model.text.value).toBe("");
  });

  test("a refused one comes back, and survives a reload on the way", async () => {
    submit("build it");
    const id = feed.last("prompt.submit")?.id ?? "";
    expect(recall("ann.feed").sent).toEqual([{ id, text: "build it" }]);
    await feed.answer(id, "the session is paused");
    expect(model.text.value).toBe("build it");
    expect(announcements.value.at(-1)?.text).toBe(en.composer.notSent("the session is paused"));
    expect(recall("ann.feed").text).toBe("build it");
  });

  test("a refused one does not overwrite what is typed meanwhile, and can be recalled", async () => {
    submit("first");
    model.setText("second");
    await feed.answer(feed.last("prompt.submit")?.id ?? "", "no");
    expect(model.text.value).toBe("second");
    model.recallPrevious();
    expect(model.text.value).toBe("first");
  });

  test("one that was refused after a reload comes back too", () => {
    submit("lost?");
    const id = feed.last("prompt.submit")?.id ?? "";
    const again = reopened();
    feed.deliver("error", { code: "INVALID_STATE", message: "no agent", recoverable: true, related_to: id }, { isEphemeral: true });
    again.onViewChanged();
    expect(again.text.value).toBe("lost?");
    expect(recall("ann.feed").sent).toEqual([]);
  });

  test("one that was accepted after a reload is forgotten", () => {
    submit("kept");
    const sent = feed.last("prompt.submit");
    const again = reopened();
    feed.deliver("prompt.submit", sent?.payload ?? {}, { id: sent?.id ?? "", sender: "ann" });
    again.onViewChanged();
    expect(again.text.value).toBe("");
    expect(recall("ann.feed").sent).toEqual([]);
  });

  test("with several agents one has to be chosen", () => {
    feed.deliver("participant.announce", { id: "helper", name: "Night Bot", type: "agent", roles: [], transport: "websocket" }, { sender: "helper" });
    submit("who?");
    expect(model.problem.value).toBe(en.composer.chooseAgent("@Bot, @Night-Bot"));
    expect(model.text.value).toBe("who?");
    submit("@Night-Bot do it");
    expect(feed.last("prompt.submit")?.payload.target_agent).toBe("helper");
    submit("/to Bot");
    submit("you");
    expect(feed.last("prompt.submit")?.payload.target_agent).toBe("bot");
    submit("@Nobody x");
    expect(model.problem.value).toBe(en.composer.noSuchAgent("Nobody", "@Bot, @Night-Bot"));
  });

  test("one that is too long for a message is not sent, because the server would close the connection", () => {
    submit("é".repeat(600_000));
    expect(model.problem.value).toBe(en.composer.tooLong);
    expect(feed.sent).toEqual([]);
    submit("\u0001".repeat(180_000));
    expect(model.problem.value).toBe(en.composer.tooLong);
  });

  test("whoever may not prompt is told so", () => {
    feed = new Feed().begin(["approver"], ["approve"]);
    model = new ComposerModel(feed.connection, "ann");
    submit("hello");
    expect(model.problem.value).toBe(en.composer.mayNot);
    expect(feed.sent).toEqual([]);
  });
});

describe("own commands", () => {
  test("their results wait for the next prompt, in order, and go before its text", async () => {
    submit("!ls");
    const first = feed.last("shell.exec");
    expect(first?.payload).toEqual({ command: "ls", executor: "bot" });
    submit("!false");
    const second = feed.last("shell.exec");
    await feed.answer(first?.id ?? "");
    await feed.answer(second?.id ?? "");
    runsShell(first?.id ?? "", "ls", 0, "README.md\n");
    model.onViewChanged();
    runsShell(second?.id ?? "", "false", 1, "");
    model.onViewChanged();
    expect(model.queued.value).toBe(2);
    submit("look at that");
    const content = String(feed.last("prompt.submit")?.payload.content);
    expect(content.split("\n").map((line) => line.slice(0, 15))).toEqual(["<shell_result>{", "<shell_result>{", "look at that"]);
    expect(content).toContain('"stdout":"README.md\\n"');
    await feed.answer(feed.last("prompt.submit")?.id ?? "");
    expect(model.queued.value).toBe(0);
    submit("again");
    expect(feed.last("prompt.submit")?.payload.content).toBe("again");
  });

  test("their results are not lost when the prompt is refused or the page is reloaded", async () => {
    submit("!ls");
    const id = feed.last("shell.exec")?.id ?? "";
    await feed.answer(id);
    runsShell(id, "ls", 0, "x\n");
    model.onViewChanged();
    submit("see");
    await feed.answer(feed.last("prompt.submit")?.id ?? "", "refused");
    expect(model.queued.value).toBe(1);
    const again = reopened();
    again.onViewChanged();
    expect(again.queued.value).toBe(1);
    again.setText("once more");
    again.submit();
    expect(String(feed.last("prompt.submit")?.payload.content)).toContain("<shell_result>");
  });

  test("a result that ends after a reload is queued", () => {
    submit("!sleep 5");
    const id = feed.last("shell.exec")?.id ?? "";
    const again = reopened();
    runsShell(id, "sleep 5", 0, "");
    again.onViewChanged();
    expect(again.queued.value).toBe(1);
  });

  test("the result of !! goes to the agent at once", async () => {
    submit("!!git diff");
    const id = feed.last("shell.exec")?.id ?? "";
    await feed.answer(id);
    runsShell(id, "git diff", 0, "diff\n");
    model.onViewChanged();
    expect(String(feed.last("prompt.submit")?.payload.content)).toMatch(/^<shell_result>.*<\/shell_result>\n$/);
  });

  test("an empty one is not sent", () => {
    submit("!");
    expect(model.problem.value).toBe(en.composer.bangEmpty);
    expect(feed.sent).toEqual([]);
  });

  test("a refused one comes back as it was typed", async () => {
    submit("!!make");
    await feed.answer(feed.last("shell.exec")?.id ?? "", "no executor");
    expect(model.text.value).toBe("!!make");
    expect(recall("ann.feed").runs).toEqual([]);
  });

  test("results can be discarded", async () => {
    submit("!ls");
    const id = feed.last("shell.exec")?.id ?? "";
    await feed.answer(id);
    runsShell(id, "ls", 0, "x\n");
    model.onViewChanged();
    submit("/drop");
    expect(model.queued.value).toBe(0);
    expect(reopened().queued.value).toBe(0);
  });
});

describe("slash commands", () => {
  test("interrupt the agents", () => {
    submit("/interrupt stop this is wrong");
    expect(feed.last("interrupt.raise")?.payload).toEqual({ urgency: "stop", message: "this is wrong" });
    submit("/interrupt wait a bit");
    expect(feed.last("interrupt.raise")?.payload).toEqual({ urgency: "pause", message: "wait a bit" });
  });

  test("set the number of approvals, and refuse what is no number", () => {
    submit("/approvals 2");
    expect(feed.last("session.config_update")?.payload.changes).toEqual({ default_gate_quorum: { type: "any", count: 2 } });
    for (const wrong of ["/approvals", "/approvals 0", "/approvals -1", "/approvals 100", "/approvals 2x"]) {
      submit(wrong);
      expect(model.problem.value).toBe(en.composer.approvalsNumber);
    }
  });

  test("open the tabs", () => {
    submit("/history");
    expect(route.value).toEqual({ screen: "session", session: "feed", tab: "history" });
  });

  test("end the session only with a reason", () => {
    submit("/end");
    expect(model.problem.value).toBe(en.composer.endNeedsReason);
    submit("/end done for today");
    expect(feed.last("session.end")?.payload).toEqual({ reason: "done for today", final_state: "completed" });
  });

  test("cancel the latest command that runs", () => {
    submit("/cancel");
    expect(model.problem.value).toBe(en.composer.nothingRuns);
    feed.runCommand("p1", "sleep 1");
    submit("/cancel no need");
    expect(feed.last("tool.cancel")?.payload).toEqual({ tool_proposal: "p1", reason: "no need" });
  });

  test("an unknown one stays for correction", () => {
    submit("/hlep");
    expect([model.problem.value, model.text.value]).toEqual([en.composer.unknown("/hlep"), "/hlep"]);
  });
});

describe("what was typed", () => {
  test("survives a reload", () => {
    model.setText("half a tho");
    expect(reopened().text.value).toBe("half a tho");
  });

  test("is recalled from the newest, and what was being typed comes back at the end", () => {
    submit("one");
    submit("two");
    model.setText("three");
    const shown: string[] = [];
    for (const move of [model.recallPrevious, model.recallPrevious, model.recallPrevious, model.recallNext, model.recallNext, model.recallNext]) {
      move.call(model);
      shown.push(model.text.value);
    }
    expect(shown).toEqual(["two", "one", "one", "two", "three", "three"]);
  });

  test("in two tabs is kept for both, and neither takes anything from the other", async () => {
    const other = reopened();
    submit("first tab");
    const id = feed.last("prompt.submit")?.id ?? "";
    other.setText("second tab");
    other.submit();
    const second = feed.last("prompt.submit")?.id ?? "";
    expect(recall("ann.feed")).toMatchObject({ text: "", history: ["first tab", "second tab"], sent: [{ id }, { id: second }] });
    other.setText("half a tho");
    await feed.answer(id);
    expect(recall("ann.feed")).toMatchObject({ text: "half a tho", sent: [{ id: second }] });
    other.setText("");
    expect(recall("ann.feed").text).toBe("");
  });

  test("before the page was opened again comes back to the field, with a sentence", () => {
    const message = { type: "shell.exec", at: 0, isWritten: false, page: "gone" };
    const why = new Refused("too old.", "STALE");
    feed.returned = [{ message: { ...message, id: "c1", payload: { command: "touch late-file" } }, why }];
    model.onViewChanged();
    expect([model.text.value, model.problem.value]).toEqual(["!touch late-file", en.composer.notRun("too old.")]);
    feed.returned = [{ message: { ...message, id: "c2", payload: { command: "ls" } }, why }];
    model.onViewChanged();
    expect([model.text.value, model.problem.value]).toEqual(["!touch late-file", `${en.composer.notRun("too old.")} ${en.composer.inHistory}`]);
    expect(recall("ann.feed")).toMatchObject({ text: "!touch late-file", history: ["!ls"], sent: [] });
    model.setText("");
    feed.returned = [{ message: { ...message, id: "c3", payload: { command: "ls" } }, why: new Refused("Nobody knows.", "UNCERTAIN") }];
    model.onViewChanged();
    expect([model.text.value, model.problem.value]).toEqual(["!ls", "Nobody knows."]);
  });

  test("broken storage is no storage", () => {
    localStorage.setItem("pvp.composer.ann.feed", '{"text":5,"history":[1,"ok"],"runs":[{"id":1}],"sent":"x"}');
    expect(recall("ann.feed")).toEqual({ text: "", history: ["ok"], target: null, runs: [], queued: [], sent: [] });
  });
});
