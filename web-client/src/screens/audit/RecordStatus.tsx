// Whether the record is whole: its chain, the server's signature, and what this device has seen before.

import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../../i18n";
import type { SessionConnection } from "../../net/connection";
import { seenHead } from "../../net/head_memory";
import { useApp } from "../../ui/context";
import { dateAndTime } from "../../ui/format";
import { Icon } from "../../ui/Icon";
import { recordProblemText } from "../../ui/record_problem";
import { Words } from "../../ui/Words";
import { useAction } from "../request";
import { checkChain } from "./chain";
import type { ChainResult } from "./chain";

export function RecordStatus({ connection }: { connection: SessionConnection }) {
  const app = useApp();
  const [result, setResult] = useState<ChainResult | null>(null);
  const [progress, setProgress] = useState<[number, number] | null>(null);
  const action = useAction();
  const stopping = useRef(new AbortController());
  useEffect(() => () => stopping.current.abort(), []);
  const { session } = connection;
  const check = () =>
    action.run(async () => {
      const { signal } = stopping.current;
      try {
        setResult(await checkChain({ api: app.api, session, seen: seenHead(session), signal, onProgress: (seq, head) => setProgress([seq, head]) }));
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        setProgress(null);
      }
    });
  const problem = app.recordProblems.value.get(session);
  return (
    <section class="panel">
      <h3>{t().audit.status}</h3>
      {problem !== undefined && (
        <p class="problem" role="alert">
          {recordProblemText(problem)}
        </p>
      )}
      <div class="stack tight" role="status">
        {progress !== null ? <p>{t().audit.checking(...progress)}</p> : <Result result={result} session={session} />}
      </div>
      <button class="fit" disabled={action.busy} onClick={check}>
        {result === null ? t().audit.check : t().audit.checkAgain}
      </button>
    </section>
  );
}

function Result({ result, session }: { result: ChainResult | null; session: string }) {
  if (result === null) return <p class="quiet">{t().audit.notChecked}</p>;
  switch (result.kind) {
    case "good":
      return <GoodResult result={result} />;
    case "bad":
      return (
        <p class="problem row">
          <Icon name="warning" />
          <span class="grow">{t().audit.bad[result.fault](result.seq)}</span>
        </p>
      );
    case "no_route": {
      const seen = seenHead(session);
      return (
        <>
          <p>{t().audit.noRoute}</p>
          <p class="quiet small">{seen === null ? t().audit.seenNothing : t().audit.seen(seen.seq)}</p>
          <Key text={result.key} />
        </>
      );
    }
    case "no_crypto":
      return <p><Words text={t().audit.noCrypto} /></p>;
  }
}

function GoodResult({ result }: { result: Extract<ChainResult, { kind: "good" }> }) {
  return (
    <>
      <p class="good row">
        <Icon name="check" />
        <span class="grow">{t().audit.good(result.entries)}</span>
      </p>
      {result.signed !== null && <p>{t().audit.signed(result.signed.seq, dateAndTime(result.signed.at))}</p>}
      {result.signed?.isVerified === false && <p><Words text={t().audit.notVerified} /></p>}
      {result.unsigned > 0 && <p class="quiet small">{t().audit.unsigned(result.unsigned)}</p>}
      <p class="quiet small">{result.seen === null ? t().audit.seenNothing : t().audit.seen(result.seen)}</p>
      {result.byHash > 0 && <p class="quiet small">{t().audit.byHash(result.byHash)}</p>}
      <Key text={result.key} />
    </>
  );
}

function Key({ text }: { text: string }) {
  return (
    <p class="small">
      {t().audit.key}: <code class="mono">{text}</code> <span class="quiet"><Words text={t().audit.keyHint} /></span>
    </p>
  );
}
