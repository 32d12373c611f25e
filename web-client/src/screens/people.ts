// Who somebody is, by their id.

import { useComputed } from "@preact/signals";
import { escapeInvisible } from "../fold";
import type { SessionConnection } from "../net/connection";
import { t } from "../i18n";
import { namesIn } from "../ui/names";

/** The name to show for a participant; the id of somebody who was never seen. */
export function nameOf(connection: SessionConnection, id: string): string {
  if (id === "system") return t().audit.server;
  return namesIn(connection.view).get(id) ?? escapeInvisible(id);
}

/** How many people are known; draws the component again when there are more, so that it can name them. */
export function useKnownPeople(connection: SessionConnection): number {
  return useComputed(() => (connection.tick.value, Object.keys(connection.view.people).length)).value;
}

export function isAdmin(connection: SessionConnection): boolean {
  return connection.view.me?.capabilities.includes("manage_participants") ?? false;
}
