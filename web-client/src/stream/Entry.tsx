// One entry of the stream.

import { Component } from "preact";
import type { Live, TimelineItem } from "../fold";
import { CommandEntry } from "./CommandEntry";
import { EventEntry } from "./EventEntry";
import { Day } from "./parts";
import { Prompt, PromptAmended, Response, Thinking } from "./Message";

interface Props {
  item: Live<TimelineItem>;
  /** The item and its command are changed in place, so their versions say whether there is something to draw. */
  version: number;
  commandVersion: number;
  isFirstOfDay: boolean;
  /** The entry before is about the same version of the same command, so it need not be named again. */
  isContinued: boolean;
}

export class Entry extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    const keys = ["item", "version", "commandVersion", "isFirstOfDay", "isContinued"] as const;
    return keys.some((key) => next[key] !== this.props[key]);
  }

  override render() {
    const { item, version, commandVersion, isFirstOfDay, isContinued } = this.props;
    return (
      <>
        {isFirstOfDay && <Day at={item.at} />}
        {drawn(item, version + commandVersion, isContinued)}
      </>
    );
  }
}

/** Both versions only grow, so their sum changes when one of them does. */
function drawn(item: TimelineItem, version: number, isContinued: boolean) {
  switch (item.kind) {
    case "prompt":
      return <Prompt item={item} version={version} />;
    case "prompt_amended":
      return <PromptAmended item={item} version={version} />;
    case "thinking":
      return <Thinking item={item} version={version} />;
    case "response":
      return <Response item={item} version={version} />;
    case "proposed":
    case "executed":
      return <CommandEntry item={item} version={version} />;
    default:
      return <EventEntry item={item} version={version} isContinued={isContinued} />;
  }
}

/** Whether two items are about the same version of the same command. */
export function isSameCommand(item: TimelineItem, before: TimelineItem): boolean {
  return "proposal" in item && "proposal" in before && item.proposal === before.proposal && item.digest === before.digest;
}

/** The command that an item is about; null if it is about none. */
export function commandOf(item: TimelineItem): string | null {
  return "proposal" in item ? item.proposal : null;
}

const LINE = 26;

/** How high an entry will probably be, before it is measured. */
export function estimatedHeight(item: TimelineItem): number {
  switch (item.kind) {
    case "prompt":
    case "prompt_amended":
      return 64 + LINE * Math.min(12, Math.ceil(item.text.length / 80));
    case "response":
      return 64 + LINE * Math.ceil(item.text.length / 80);
    case "thinking":
      return 84;
    case "proposed":
    case "executed":
      return 150;
    case "resolved":
      return item.outcome === "approved" ? 120 : 60;
    case "approved":
    case "rejected":
    case "edited":
      return 68;
    default:
      return 38;
  }
}
