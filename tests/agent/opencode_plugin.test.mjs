// The plugin for OpenCode, with stand-ins for OpenCode and for `pvp hook run`: what it asks, and that
// only an answer that allows lets a call through.
import assert from "node:assert/strict"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { after, test } from "node:test"
import { pathToFileURL } from "node:url"

const SOURCE = readFileSync(new URL("../../bridge/src/launch/opencode_plugin.js", import.meta.url))

// Notes what it is asked, and answers with the file `answer`.
const ANSWERS = 'cat >> "$1/asked"; echo >> "$1/asked"; cat "$1/answer"'

const directories = []
after(() => directories.forEach((directory) => rmSync(directory, { recursive: true })))

// The plugin as OpenCode loads it. `script` is run by a shell as the program that is asked.
const load = async ({ script = ANSWERS, words, backstop = false } = {}) => {
  const files = mkdtempSync(join(tmpdir(), "pvp-plugin-"))
  directories.push(files)
  const place = { words: words ?? ["/bin/sh", "-c", script, "--files", files], backstop }
  const path = join(files, "plugin.mjs")
  writeFileSync(path, `const place = ${JSON.stringify(place)}\n${SOURCE}`)
  const { Pvp } = await import(pathToFileURL(path))
  const aborted = []
  const prompted = []
  const waiting = []
  const client = {
    session: {
      abort: async ({ path }) => {
        aborted.push(path.id)
        waiting.splice(0).forEach((heard) => heard(path.id))
      },
      promptAsync: async (prompt) => void prompted.push(prompt),
    },
  }
  const hooks = await Pvp({ client, directory: "/work" })
  return {
    aborted,
    prompted,
    files,
    hooks,
    answer: (answer) => writeFileSync(join(files, "answer"), JSON.stringify(answer)),
    asked: () => {
      const lines = readFileSync(join(files, "asked"), "utf8").trim().split("\n")
      return lines.map((line) => JSON.parse(line))
    },
    nextAbort: () => new Promise((heard) => waiting.push(heard)),
    before: (args, callID = "call-1") => {
      const output = { args }
      const call = { tool: "bash", sessionID: "s", callID }
      return hooks["tool.execute.before"](call, output).then(() => output.args)
    },
  }
}

test("a call that is allowed runs with the arguments that were asked about", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow" })
  const args = { command: "ls", timeout: 5 }
  assert.equal(await plugin.before(args), args)
  assert.deepEqual(args, { command: "ls", timeout: 5 })
  const call = { sessionID: "s", callID: "call-1", tool: "bash", directory: "/work" }
  const question = { ...call, event: "before", args: { command: "ls", timeout: 5 } }
  assert.deepEqual(plugin.asked(), [question])
})

test("a call that is denied throws the reason, and nothing is said about its end", async () => {
  const plugin = await load()
  plugin.answer({ answer: "deny", reason: "Rejected by ann: keep them." })
  await assert.rejects(plugin.before({ command: "rm -r src" }), /^Error: Rejected by ann: keep them\.$/)
  assert.deepEqual(plugin.aborted, [])
  const ended = { callID: "call-1", sessionID: "s" }
  await plugin.hooks["tool.execute.after"](ended, { output: "" })
  assert.equal(plugin.asked().length, 1)
})

test("a call that is stopped throws and ends the turn", async () => {
  const plugin = await load()
  plugin.answer({ answer: "deny", stop: true, reason: "Interrupted by ann." })
  await assert.rejects(plugin.before({ command: "make" }), /Interrupted by ann/)
  assert.deepEqual(plugin.aborted, ["s"])
})

test("a call that people edited runs with exactly what they wrote", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow", args: { command: "rm -r build" } })
  const args = { command: "rm -r all", workdir: "/", [Symbol("hidden")]: 1 }
  // OpenCode goes on with the object that it has.
  assert.equal(await plugin.before(args), args)
  assert.deepEqual(Reflect.ownKeys(args), ["command"])
  assert.equal(args.command, "rm -r build")
})

test("arguments that say something else each time they are read run as they were asked about", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow" })
  let reads = 0
  const args = {
    get command() {
      reads += 1
      return reads === 1 ? "ls" : "rm -r /"
    },
  }
  await plugin.before(args)
  const property = Object.getOwnPropertyDescriptor(args, "command")
  assert.deepEqual(property, { value: "ls", writable: true, enumerable: true, configurable: true })
  assert.equal(plugin.asked()[0].args.command, "ls")
})

test("arguments that cannot be replaced do not run", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow", args: { command: "ls" } })
  await assert.rejects(plugin.before(Object.freeze({ command: "rm -r all" })), TypeError)
  const fixed = Object.defineProperty({}, "command", { get: () => "rm -r all", enumerable: true })
  await assert.rejects(plugin.before(fixed), TypeError)
})

for (const [what, script] of [
  ["crashes", "exit 1"],
  ["says nothing", "exit 0"],
  ["is killed", "kill -9 $$"],
  ["is killed in the middle of its answer", `printf '{"answer":"al'; kill -9 $$`],
  ["prints garbage", "echo garbage"],
  ["prints garbage after its answer", `echo '{"answer":"allow"} and more'`],
  ["answers nothing", "echo '{}'"],
  ["answers null", "echo null"],
  ["answers with a list", `echo '["allow"]'`],
  ["answers something else", `echo '{"answer":"ALLOW"}'`],
  ["does not read the question", "exec < /dev/null; echo '{}'"],
]) {
  test(`a program that ${what} lets nothing through`, async () => {
    const plugin = await load({ script })
    await assert.rejects(plugin.before({ command: "ls" }))
  })
}

test("a program that is missing lets nothing through and says so", async () => {
  for (const program of ["/nowhere/pvp", ""]) {
    const plugin = await load({ words: [program, "--files", "/nowhere"] })
    await assert.rejects(plugin.before({ command: "ls" }), /PVP could not be asked/)
  }
})

test("a turn that the person stops waits for no answer", { timeout: 30_000 }, async () => {
  const plugin = await load({ script: "exec sleep 600" })
  const call = plugin.before({ command: "ls" })
  const other = { type: "session.error", properties: { sessionID: "another" } }
  await plugin.hooks.event({ event: other })
  const stopped = { type: "session.error", properties: { sessionID: "s" } }
  await plugin.hooks.event({ event: stopped })
  await assert.rejects(call, /did not answer/)
})

test("what runs is aborted once people interrupt", { timeout: 30_000 }, async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow" })
  await plugin.before({ command: "make" })
  const abort = plugin.nextAbort()
  // The plugin looks from time to time, which alone keeps no process alive.
  const alive = setInterval(() => {}, 1000)
  writeFileSync(join(plugin.files, "stop"), "")
  assert.equal(await abort, "s")
  clearInterval(alive)
})

test("the end of a call is told once, with the arguments that ran", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow", args: { command: "make check" } })
  await plugin.before({ command: "make" })
  const ended = { callID: "call-1", sessionID: "s" }
  const result = { output: "ok\n", metadata: { exit: 0 } }
  await plugin.hooks["tool.execute.after"](ended, result)
  await plugin.hooks["tool.execute.after"](ended, result)
  const told = plugin.asked().filter(({ event }) => event === "after")
  assert.equal(told.length, 1)
  assert.deepEqual(told[0].args, { command: "make check" })
  assert.deepEqual([told[0].output, told[0].metadata], ["ok\n", { exit: 0 }])
})

test("a call that failed is told with its error, and an answer may end the turn", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow" })
  await plugin.before({ command: "make" })
  plugin.answer({ answer: "stop" })
  const part = {
    type: "tool", callID: "call-1", sessionID: "s", state: { status: "error", error: "no rule" },
  }
  const event = { type: "message.part.updated", properties: { sessionID: "s", part } }
  await plugin.hooks.event({ event })
  assert.equal(plugin.asked().at(-1).error, "no rule")
  assert.deepEqual(plugin.aborted, ["s"])
})

test("a prompt is told as it was typed, and a subagent's call names the subagent", async () => {
  const plugin = await load()
  plugin.answer({ answer: "allow" })
  const parts = [
    { type: "text", text: "fix it" },
    { type: "text", text: "a reminder", synthetic: true },
    { type: "file", url: "file:///x" },
    { type: "text", text: "and test it" },
  ]
  await plugin.hooks["chat.message"]({ sessionID: "s" }, { message: { id: "m" }, parts })
  const { event, prompt } = plugin.asked()[0]
  assert.deepEqual([event, prompt], ["prompt", "fix it\nand test it"])
  const created = { info: { id: "s", parentID: "parent", agent: "explore" } }
  await plugin.hooks.event({ event: { type: "session.created", properties: created } })
  await plugin.hooks["chat.message"]({ sessionID: "s" }, { message: { id: "n" }, parts })
  await plugin.before({ command: "ls" })
  const asked = plugin.asked()
  assert.equal(asked.length, 2)
  assert.equal(asked[1].subagent, "explore")
})

test("an agent that is idle is told what people said meanwhile", async () => {
  const plugin = await load()
  plugin.answer({ answer: "continue", text: "ann says: and the docs" })
  const part = { type: "text", messageID: "m", sessionID: "s", text: "I am done." }
  const properties = { sessionID: "s", part }
  await plugin.hooks.event({ event: { type: "message.part.updated", properties } })
  await plugin.hooks.event({ event: { type: "session.idle", properties: { sessionID: "s" } } })
  const { event, message } = plugin.asked()[0]
  assert.deepEqual([event, message], ["idle", "I am done."])
  const body = { parts: [{ type: "text", text: "ann says: and the docs" }] }
  assert.deepEqual(plugin.prompted, [{ path: { id: "s" }, body }])
})

test("only a plugin that has a backstop takes the denial of every tool away", async () => {
  for (const backstop of [true, false]) {
    const plugin = await load({ backstop })
    const config = { permission: { "*": "deny", bash: "ask" } }
    await plugin.hooks.config(config)
    const expected = backstop ? { bash: "ask" } : { "*": "deny", bash: "ask" }
    assert.deepEqual(config.permission, expected)
  }
})

test("what OpenCode told a plugin is asked and told as the recorded questions", async () => {
  const recorded = (name) => {
    const url = new URL(`../bridges/captures/${name}.jsonl`, import.meta.url)
    return readFileSync(url, "utf8").trim().split("\n").map((line) => JSON.parse(line))
  }
  const plugin = await load()
  plugin.answer({ answer: "allow" })
  const call = {
    "chat.message": plugin.hooks["chat.message"],
    before: plugin.hooks["tool.execute.before"],
    after: plugin.hooks["tool.execute.after"],
    event: (event) => plugin.hooks.event({ event }),
  }
  for (const [what, ...told] of recorded("opencode-plugin")) await call[what](...told)
  assert.deepEqual(plugin.asked(), recorded("opencode-questions"))
})
