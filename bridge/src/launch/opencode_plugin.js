// Asks PVP about every tool call of OpenCode, and tells it how each ended. A call runs only if PVP
// says so: without this plugin the configuration that loads it denies every tool.
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"

const children = new Map() // hooks that wait, by session
const running = new Map() // calls that were allowed and have not ended, by their ids
const subagents = new Map() // names of subagents, by session
const prompts = new Set() // messages that people wrote
const said = new Map() // what the agent said last, by session

// A call that is decided sooner is not worth a notice.
const NOTICE_MILLIS = 2000
const NOTICE_AGAIN_MILLIS = 60000

// Asks once. Whatever goes wrong is a denial.
const ask = (event) =>
  new Promise((resolve) => {
    const denied = (why) => resolve({ answer: "deny", reason: `Not allowed: ${why}.` })
    let child
    try {
      const [program, ...words] = place.words
      child = spawn(program, words, { stdio: ["pipe", "pipe", "ignore"] })
    } catch (error) {
      return denied(`PVP could not be asked: ${error}`)
    }
    const waiting = children.get(event.sessionID) ?? new Set()
    children.set(event.sessionID, waiting.add(child))
    let output = ""
    child.stdout.on("data", (data) => (output += data))
    child.stdin.on("error", () => {})
    child.on("error", (error) => denied(`PVP could not be asked: ${error}`))
    child.on("close", () => {
      waiting.delete(child)
      try {
        resolve(JSON.parse(output))
      } catch {
        denied("PVP was asked and did not answer")
      }
    })
    child.stdin.end(JSON.stringify({ directory: place.directory, ...event }))
  })

export const Pvp = async ({ client, directory }) => {
  place.directory = directory
  const abort = (sessionID) => client.session.abort({ path: { id: sessionID } }).catch(() => {})
  const obey = (sessionID, answer) => {
    if (answer.answer === "stop" || answer.stop) return abort(sessionID)
  }
  // People interrupted the agent: OpenCode does not notice by itself that what it runs was stopped.
  // A plugin that is installed does not know where that is noted; there the next call is denied.
  const files = place.words[place.words.indexOf("--files") + 1]
  const watch = setInterval(() => {
    if (running.size === 0 || !existsSync(`${files}/stop`)) return
    for (const { sessionID } of running.values()) abort(sessionID)
  }, 250)
  watch.unref()
  // Says in the screen that people are asked, as long as they are. Without a screen nobody sees it.
  const notice = (tool) => {
    const began = Date.now()
    let timer
    const show = () => {
      const minutes = Math.floor((Date.now() - began) / 60000)
      const since = minutes > 0 ? `, for ${minutes} min` : ""
      const body = { title: "PVP", message: `${tool} waits${since}. ${place.waiting}`, variant: "info" }
      Promise.resolve().then(() => client.tui?.showToast?.({ body })).catch(() => {})
      timer = setTimeout(show, place.noticeAgain ?? NOTICE_AGAIN_MILLIS)
      timer.unref()
    }
    timer = setTimeout(show, place.noticeAfter ?? NOTICE_MILLIS)
    timer.unref()
    return () => clearTimeout(timer)
  }
  const ended = async (input, result) => {
    const call = running.get(input.callID)
    if (!call) return
    running.delete(input.callID)
    obey(input.sessionID, await ask({ ...call, event: "after", ...result }))
  }
  return {
    config: async (config) => {
      if (place.backstop) delete config.permission["*"]
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      prompts.add(message.id)
      if (subagents.has(sessionID)) return
      const text = parts.filter((part) => part.type === "text" && !part.synthetic)
      await ask({ event: "prompt", sessionID, prompt: text.map((part) => part.text).join("\n") })
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, output) => {
      const call = { sessionID, callID, tool, directory, subagent: subagents.get(sessionID) }
      // Read once and written back as plain values: what another plugin left there may say
      // something else each time it is read.
      const args = JSON.parse(JSON.stringify(output.args ?? {}))
      const noLonger = notice(tool)
      const answer = await ask({ ...call, event: "before", args }).finally(noLonger)
      if (answer.answer !== "allow") {
        if (answer.stop) await abort(sessionID)
        throw new Error(answer.reason ?? "Not allowed.")
      }
      const judged = answer.args ?? args
      // A new object would be ignored.
      for (const name of Reflect.ownKeys(output.args)) delete output.args[name]
      for (const [name, value] of Object.entries(judged)) {
        const plain = { value, writable: true, enumerable: true, configurable: true }
        Object.defineProperty(output.args, name, plain)
      }
      running.set(callID, { ...call, args: { ...judged } })
    },
    "tool.execute.after": async (input, output) => {
      const { metadata } = output
      await ended(input, { output: output.output ?? output.content, metadata })
    },
    event: async ({ event }) => {
      const { type, properties } = event
      const { sessionID } = properties
      if (type === "session.created" && properties.info.parentID) {
        subagents.set(properties.info.id, properties.info.agent ?? "subagent")
      } else if (type === "session.error") {
        // The person stopped the turn; nobody waits for these answers any more.
        for (const child of children.get(sessionID) ?? []) child.kill("SIGTERM")
      } else if (type === "message.part.updated") {
        const { part } = properties
        if (part.type === "text" && !prompts.has(part.messageID)) said.set(part.sessionID, part.text)
        if (part.type === "tool" && part.state.status === "error") {
          await ended({ callID: part.callID, sessionID: part.sessionID }, { error: part.state.error })
        }
      } else if (type === "session.idle" && !subagents.has(sessionID)) {
        const message = said.get(sessionID)
        said.delete(sessionID)
        const answer = await ask({ event: "idle", sessionID, message })
        if (answer.answer === "continue") {
          const body = { parts: [{ type: "text", text: answer.text }] }
          await client.session.promptAsync({ path: { id: sessionID }, body })
        }
      }
    },
    dispose: async () => {
      await ask({ event: "end" })
    },
  }
}
