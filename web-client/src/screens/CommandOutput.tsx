// What a command printed, a page of lines at a time.

import { useState } from "preact/hooks";
import type { OutputLine, OutputPage } from "@protocol";
import { escapeInvisible } from "../fold";
import { t } from "../i18n";
import { useApp } from "../ui/context";
import { sessionPath, useAction } from "./request";

const LINES = 200;

interface Read {
  lines: OutputLine[];
  total: number;
  next: number | undefined;
}

export function CommandOutput({ session, proposal, command }: { session: string; proposal: string; command: string }) {
  const app = useApp();
  const [read, setRead] = useState<Read | null>(null);
  const action = useAction();
  const load = (offset: number, before: OutputLine[]) =>
    action.run(async () => {
      const path = sessionPath(session, `outputs/${encodeURIComponent(proposal)}?offset=${offset}&limit=${LINES}`);
      const page = await app.api.get<OutputPage>(path);
      setRead({ lines: [...before, ...page.lines], total: page.total_lines, next: page.next ?? undefined });
    });
  if (read === null) {
    return (
      <button class="fit" disabled={action.busy} onClick={() => load(0, [])}>
        {t().history.output}
      </button>
    );
  }
  return (
    <div class="stack">
      {read.lines.length === 0 ? (
        <p class="quiet">{t().history.noOutput}</p>
      ) : (
        <pre class="raw-output" tabIndex={0} role="region" aria-label={t().history.outputOf(escapeInvisible(command))}>
          {read.lines.map((line) => (
            <span key={`${line.stream}${line.number}`} class={line.stream}>
              {escapeInvisible(line.text)}
              {"\n"}
            </span>
          ))}
        </pre>
      )}
      <p class="row">
        <span class="grow quiet small">{t().history.lines(read.lines.length, read.total)}</span>
        {read.next !== undefined && (
          <button disabled={action.busy} onClick={() => load(read.next ?? 0, read.lines)}>
            {t().history.moreOutput}
          </button>
        )}
        <button onClick={() => setRead(null)}>{t().history.outputHide}</button>
      </p>
    </div>
  );
}
