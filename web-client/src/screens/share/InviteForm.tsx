// Says who is invited, what they may do, where, and for how long.

import { useState } from "preact/hooks";
import type { CreatedDeviceCode, CreatedJoinCode, Invitation, InviteRequest, JoinCodeRequest, ParticipantKind, Role } from "@protocol";
import { t } from "../../i18n";
import { Api } from "../../net/api";
import { useApp } from "../../ui/context";
import { Choice, SelectField } from "../parts";
import { useAction } from "../request";
import type { Made } from "../SharePanel";

const ROLES: { [key: string]: Role[] } = {
  approver: ["approver"],
  observer: ["observer"],
  driver_approver: ["driver", "approver"],
  driver: ["driver"],
  adversary: ["adversary"],
  admin: ["admin"],
};

/** Seconds; 0 means that it never expires. */
const LIFETIMES = [3600, 28_800, 86_400, 604_800, 2_592_000, 0];
const DEFAULT_LIFETIME = 86_400;
const CODE_SECONDS = 3600;

interface Invite {
  /** A code comes first: it works once, soon expires, and never makes an admin. */
  how: "code" | "link";
  name: string;
  kind: ParticipantKind;
  roles: string;
  where: "here" | "everywhere";
  lifetime: number;
}

export function InviteForm({ session, onMade }: { session: string; onMade(made: Made): void }) {
  const app = useApp();
  const action = useAction();
  const [invite, setInvite] = useState<Invite>({ how: "code", name: "", kind: "human", roles: "approver", where: "here", lifetime: DEFAULT_LIFETIME });
  const change = (part: Partial<Invite>) => setInvite({ ...invite, ...part });
  const isCode = invite.how === "code";
  // A code never makes an admin, and is for people.
  const roles = Object.keys(ROLES).filter((key) => !isCode || key !== "admin");
  const make = () =>
    action.run(async () => {
      if (isCode) onMade({ kind: "code", code: await app.api.post<CreatedJoinCode>("/api/codes", codeRequest(invite, session)) });
      else onMade(await makeLink());
    });
  const makeLink = async (): Promise<Made> => {
    const request = linkRequest(invite, session);
    const invitation = await app.api.post<Invitation>("/api/invites", request);
    // Without it the link is still good.
    const page = invite.kind === "agent" ? null : await pageLink(invitation.token, session).catch(() => null);
    return { kind: "link", name: request.name, invitation, page };
  };
  return (
    <form
      class="panel"
      onSubmit={(event) => {
        event.preventDefault();
        make();
      }}
    >
      <Choice<Invite["how"]>
        legend={t().share.how}
        name="invite-how"
        value={invite.how}
        options={[
          ["code", t().share.byCode],
          ["link", t().share.byLink],
        ]}
        onChange={(how) => change({ how, roles: invite.roles === "admin" ? "approver" : invite.roles })}
      />
      {!isCode && (
        <label>
          {t().share.name}
          <input value={invite.name} maxLength={128} required autocomplete="off" onInput={(event) => change({ name: event.currentTarget.value })} />
        </label>
      )}
      <SelectField label={t().share.what} value={invite.roles} options={roles.map((key) => [key, t().share.roles[key] ?? key] as const)} onChange={(chosen) => change({ roles: chosen })} />
      {invite.roles === "admin" && <p class="banner">{t().share.adminWarning}</p>}
      {!isCode && (
        <SelectField<ParticipantKind>
          label={t().share.kind}
          value={invite.kind}
          options={[
            ["human", t().share.human],
            ["agent", t().share.agent],
          ]}
          onChange={(kind) => change({ kind })}
        />
      )}
      {/* Whoever is bound to a session invites only to it. */}
      {app.device.session === null && (
        <Choice<Invite["where"]>
          legend={t().share.where}
          name="invite-where"
          value={invite.where}
          options={[
            ["here", t().share.here],
            ["everywhere", t().share.everywhere],
          ]}
          onChange={(where) => change({ where })}
        />
      )}
      <SelectField
        label={t().share.expires}
        value={invite.lifetime}
        options={LIFETIMES.map((seconds) => [seconds, t().share.expiresIn[seconds] ?? String(seconds)] as const)}
        {...(isCode ? { hint: t().share.codeExpires } : {})}
        onChange={(lifetime) => change({ lifetime })}
      />
      <button class="primary wide" disabled={action.busy || (!isCode && invite.name.trim() === "")}>
        {isCode ? t().share.createCode : t().share.create}
      </button>
    </form>
  );
}

/** What whoever has this token opens in a browser, once. */
function pageLink(token: string, session: string): Promise<CreatedDeviceCode> {
  return new Api(token).post<CreatedDeviceCode>("/api/device-codes", { session });
}

function linkRequest(invite: Invite, session: string): InviteRequest {
  return { name: invite.name.trim(), kind: invite.kind, capabilities: [], ...terms(invite, session) };
}

function codeRequest(invite: Invite, session: string): JoinCodeRequest {
  return { code_seconds: CODE_SECONDS, ...terms(invite, session) };
}

function terms(invite: Invite, session: string): { roles: Role[]; session?: string; expires_seconds?: number } {
  return {
    roles: ROLES[invite.roles] ?? ["observer"],
    ...(invite.where === "here" ? { session } : {}),
    ...(invite.lifetime > 0 ? { expires_seconds: invite.lifetime } : {}),
  };
}
