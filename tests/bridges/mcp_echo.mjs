// An MCP server over stdio with one tool, `echo`, which returns its text.
import { createInterface } from "node:readline";

const tool = {
  name: "echo",
  description: "Returns the text.",
  inputSchema: {
    type: "object",
    properties: { text: { type: "string" } },
    required: ["text"],
  },
};

function respond({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "echo", version: "1.0.0" },
      };
    case "tools/list":
      return { tools: [tool] };
    case "tools/call":
      return { content: [{ type: "text", text: `echo: ${params.arguments.text}` }] };
    default:
      return {};
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.id !== undefined) {
    const answer = { jsonrpc: "2.0", id: request.id, result: respond(request) };
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
}
