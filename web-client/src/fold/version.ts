// The versions of a proposed command: what was proposed, and what each edit made of it.
//
// A welcome tells the command as it is; the log tells how it became so. What a screen says about an
// earlier message must name the command of that time, so each timeline item keeps its version.

import type { ParticipantId } from "@protocol";
import { truncateLine } from "./text";
import type { CommandVersion, RequestedAction } from "./types";

/** Approvals of one version that are kept. */
const MAX_VOTES = 1000;

/** A version that no message told. */
export const UNKNOWN_VERSION: CommandVersion = { shown: "", category: null, sensitive_read: false, digest: null };

/** The version that a request is. */
export function versionOf(requested: RequestedAction): CommandVersion {
  const { assessment } = requested;
  return {
    shown: truncateLine(requested.shown),
    category: assessment?.category ?? null,
    sensitive_read: assessment?.sensitive_read === true,
    digest: assessment?.digest ?? null,
  };
}

/** Whether a request is this version. */
export function isVersionOf(version: CommandVersion, requested: RequestedAction): boolean {
  return version.digest !== null && version.digest === requested.assessment?.digest;
}

/**
 * What the messages folded so far tell about a command, in the order of the log. During history this
 * is behind what the welcome told.
 */
export class LoggedVersion {
  /** `command` is null if neither its proposal nor an edit was received. */
  constructor(
    readonly command: CommandVersion | null = null,
    public approvedBy: ParticipantId[] = [],
  ) {}

  addVote(approver: ParticipantId): void {
    if (this.approvedBy.length < MAX_VOTES && !this.approvedBy.includes(approver)) this.approvedBy.push(approver);
  }

  removeVote(approver: ParticipantId): void {
    if (this.approvedBy.includes(approver)) this.approvedBy = this.approvedBy.filter((id) => id !== approver);
  }
}
