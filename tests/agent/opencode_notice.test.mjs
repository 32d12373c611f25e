// The plugin for OpenCode, with stand-ins for OpenCode and for `pvp hook run`: what it shows while a
// call waits.
import assert from "node:assert/strict"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { after, test } from "node:test"
import { pathToFileURL } from "node:url"

const SOURCE = readFileSync(new URL("../../bridge/src/launch/opencode_plugin.js", import.meta.url))

// Answers once the file `answer` is there.
const WAITS = 'cat > /dev/null; until [ -e "$1/answer" ]; do sleep 0.05; done; echo \'{"answer": "allow"}\''

const directories = []
after(() => directories.forEach((directory) => rmSync(directory, { recursive: true })))

const load = async (tui) => {
  const files = mkdtempSync(join(tmpdir(), "pvp-plugin-"))
  directories.push(files)
  const place = {
    words: ["/bin/sh", "-c", WAITS, "--files", files],
    waiting: "PVP asks ann (pvp gates)",
    noticeAfter: 0,
    noticeAgain: 1,
  }
  const path = join(files, "plugin.mjs")
  writeFileSync(path, `const place = ${JSON.stringify(place)}\n${SOURCE}`)
  const { Pvp } = await import(pathToFileURL(path))
  const hooks = await Pvp({ client: { session: {}, tui }, directory: "/work" })
  return {
    before: () =>
      hooks["tool.execute.before"]({ tool: "bash", sessionID: "s", callID: "c" }, { args: {} }),
    answer: () => writeFileSync(join(files, "answer"), ""),
  }
}

test("while a call waits the screen says so again and again, and then no more", async () => {
  let heard
  const twice = new Promise((resolve) => (heard = resolve))
  const shown = []
  const plugin = await load({
    showToast: async ({ body }) => {
      if (shown.push(body) === 2) heard()
    },
  })
  const call = plugin.before()
  await twice
  plugin.answer()
  await call
  const message = "bash waits. PVP asks ann (pvp gates)"
  assert.deepEqual(shown[0], { title: "PVP", message, variant: "info" })
  const before = shown.length
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.equal(shown.length, before)
})

test("a client without a screen, or with one that fails, is asked about all the same", async () => {
  for (const tui of [undefined, { showToast: () => Promise.reject(new Error("no screen")) }]) {
    const plugin = await load(tui)
    const call = plugin.before()
    plugin.answer()
    await call
  }
})
