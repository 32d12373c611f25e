// Invites people into a session, and takes invitations back.

import { useState } from "preact/hooks";
import type { CreatedDeviceCode, CreatedJoinCode, Invitation } from "@protocol";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import { useApp } from "../ui/context";
import { names } from "../ui/format";
import { InviteForm } from "./share/InviteForm";
import { MadeInvitation } from "./share/MadeInvitation";
import { Words } from "../ui/Words";
import { TokenLists } from "./share/TokenLists";
import { useSlowTick } from "./slow_tick";

/** `page` is what the invited person opens in a browser, once; agents open none. */
export type Made = { kind: "link"; name: string; invitation: Invitation; page: CreatedDeviceCode | null } | { kind: "code"; code: CreatedJoinCode };

export function SharePanel({ connection }: { connection: SessionConnection }) {
  const tick = useSlowTick(connection);
  const app = useApp();
  const [made, setMade] = useState<Made | null>(null);
  const [round, setRound] = useState(0);
  if (!app.device.roles.includes("admin")) return <OnlyAdmins connection={connection} tick={tick} />;
  const onMade = (fresh: Made) => {
    setMade(fresh);
    setRound(round + 1);
  };
  return (
    <div class="screen">
      <h2>{t().share.heading}</h2>
      {made === null ? <InviteForm session={connection.session} onMade={onMade} /> : <MadeInvitation made={made} onDone={() => setMade(null)} />}
      <TokenLists connection={connection} round={round} tick={tick} />
    </div>
  );
}

function OnlyAdmins({ connection }: { connection: SessionConnection; tick: number }) {
  const admins = Object.values(connection.view.people).filter((person) => !person.left && person.roles.includes("admin"));
  return (
    <div class="screen">
      <h2>{t().share.heading}</h2>
      <p>{t().share.onlyAdmins}</p>
      <p>
        <Words text={admins.length === 0 ? t().share.askOperator : t().share.askAdmins(names(admins.map((person) => escapeInvisible(person.name))))} />
      </p>
    </div>
  );
}
