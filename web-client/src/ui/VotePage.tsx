// A vote link: one card, one person, one vote. Opening it votes on nothing.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GateDetails } from "@protocol";
import { Card } from "../card/Card";
import { Decided, resolutionOf } from "../card/Decided";
import { cardOfGate } from "../card/model";
import { linkSender, problemText } from "../card/sending";
import { bareFacts } from "../card/session_facts";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { Api, ApiError } from "../net/api";

/** What `GET /api/vote` answers. */
interface VoteLink {
  gate: GateDetails;
  participant: string;
  name: string;
  session_name?: string;
}

/** Others may decide while the card is open. */
const ASK_EVERY_MS = 5000;

export function VotePage({ secret, onLeave }: { secret: string; onLeave(): void }) {
  const api = useMemo(() => new Api(secret), [secret]);
  const [link, setLink] = useState<VoteLink | null>(null);
  const [problem, setProblem] = useState<{ text: string; isDead: boolean } | null>(null);

  async function ask() {
    try {
      const fresh = await api.get<VoteLink>("/api/vote", { exactNumbers: true });
      setLink(fresh);
      setProblem(null);
    } catch (error) {
      const isDead = error instanceof ApiError && [401, 403, 404, 409, 410].includes(error.status);
      setProblem({ text: problemText(error), isDead });
    }
  }

  const isOver = (problem?.isDead ?? false) || (link !== null && link.gate.status !== "open");
  useEffect(() => void ask(), [api]);
  useEffect(() => {
    if (isOver) return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void ask();
    }, ASK_EVERY_MS);
    return () => clearInterval(timer);
  }, [api, isOver]);

  return (
    <main class="screen vote-page">
      <h1>{t().vote.heading}</h1>
      {link !== null && (
        <p>
          {t().vote.as(escapeInvisible(link.name))}
          {link.session_name !== undefined && ` ${t().inbox.in(escapeInvisible(link.session_name))}`}
        </p>
      )}
      {problem !== null && (
        <div class="problem" role="alert">
          {problem.isDead && <p>{t().vote.dead}</p>}
          <p>{problem.text}</p>
        </div>
      )}
      {problem !== null && !problem.isDead && <button onClick={() => void ask()}>{t().app.retry}</button>}
      {link === null && problem === null && <p class="center">{t().app.loading}</p>}
      {link !== null && <LinkCard link={link} api={api} isDead={problem?.isDead ?? false} onAnswer={(answer) => setLink({ ...link, gate: answer })} />}
      <button class="plain" onClick={onLeave}>
        {t().vote.openPage}
      </button>
    </main>
  );
}

interface LinkCardProps {
  link: VoteLink;
  api: Api;
  isDead: boolean;
  onAnswer(gate: GateDetails): void;
}

function LinkCard({ link, api, isDead, onAnswer }: LinkCardProps) {
  const last = useRef(link.gate);
  if (link.gate.open !== undefined) last.current = link.gate;
  const sender = useMemo(() => linkSender(api), [api]);
  const facts = useMemo(() => bareFacts({ id: link.participant, name: link.name, roles: [] }), [link.participant, link.name]);
  const isClosed = isDead || link.gate.status !== "open";
  const resolution = link.gate.resolution === undefined ? null : resolutionOf(link.gate.resolution);
  const item = last.current.open;
  if (item === undefined) return <Decided resolution={resolution} who={facts} />;
  return (
    <Card
      card={cardOfGate(item, last.current, facts)}
      sender={sender}
      {...(isClosed ? { resolution } : {})}
      takesFocus
      onAnswer={onAnswer}
    />
  );
}
