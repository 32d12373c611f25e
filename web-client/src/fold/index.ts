// What one participant sees of a session, folded from the messages that they receive.

export { View } from "./view";
export type { ViewOptions } from "./state";
export { parseServerMessage, readServerMessage } from "./envelope";
export type { Envelope } from "./envelope";
export { escapeInvisible } from "./text";
export type { Card } from "./card";
export { noteOf } from "./notes";
export type { Proposal } from "./proposal";
export type { Participant } from "./participants";
export type { Output, OutputSince } from "./output";
export * from "./queries";
export * from "./shell_result";
export * from "./types";
