// What people and agents say: prompts, thinking, responses.

import { escapeInvisible } from "../fold";
import type { TimelineItem } from "../fold";
import { t } from "../i18n";
import { runTime } from "../ui/format";
import { later } from "../ui/later";
import { byteSize, Clamped, Folded, Head, nameOf, Plain } from "./parts";
import { splitShellResults } from "./shell_results";
import type { ShownResult } from "./shell_results";
import { useSource } from "./source";
import type { Versioned } from "./source";

/** Reading Markdown takes more code than all the rest of the stream. Until it is loaded, and without it, the text is there as it was written. */
const Markdown = later<{ text: string; isGrowing?: boolean }>(async () => (await import("./markdown")).Markdown, Plain);

type Item<Kind> = Extract<TimelineItem, { kind: Kind }>;

export function Prompt({ item }: Versioned & { item: Item<"prompt"> }) {
  const { view } = useSource();
  const { results, text } = splitShellResults(item.text);
  return (
    <div class="entry message prompt">
      <Head item={item}>
        <span class="quiet">{t().stream.prompt(nameOf(view, item.to))}</span>
      </Head>
      {results.map((result, index) => (
        <ShellResultNote key={index} id={`${item.id}-${index}`} result={result} />
      ))}
      {text !== "" && <Clamped id={item.id} text={text} children={said} />}
      <Cut bytes={item.cut_bytes} />
    </div>
  );
}

export function PromptAmended({ item }: Versioned & { item: Item<"prompt_amended"> }) {
  return (
    <div class="entry message prompt">
      <Head item={item}>
        <span class="quiet">{t().stream.promptAmended}</span>
      </Head>
      <Clamped id={item.id} text={item.text} children={said} />
      {item.reason !== "" && <p class="quiet">{escapeInvisible(item.reason)}</p>}
      <Cut bytes={item.cut_bytes} />
    </div>
  );
}

/** Text as somebody typed it. */
function said(text: string) {
  return <Plain text={text} />;
}

function ShellResultNote({ id, result }: { id: string; result: ShownResult }) {
  const exit = result.exit === null ? t().stream.unknownEnd : t().stream.exit(result.exit);
  return (
    <Folded id={id} summary={t().stream.shellResult(escapeInvisible(result.command), exit)}>
      {() => <pre dir="ltr">{escapeInvisible(result.json)}</pre>}
    </Folded>
  );
}

export function Thinking({ item }: Versioned & { item: Item<"thinking"> }) {
  const took = item.duration_ms === null ? t().stream.thinking : t().stream.thought(runTime(item.duration_ms));
  const summary = item.summary === null || item.summary === "" ? "" : `: ${escapeInvisible(item.summary)}`;
  return (
    <div class="entry message thinking">
      <Head item={item} />
      <Folded id={item.id} summary={item.open ? t().stream.thinkingOpen : took + summary}>
        {() => (
          <>
            <p class="plain-text quiet" dir="auto">
              {escapeInvisible(item.text)}
            </p>
            <Cut bytes={item.cut_bytes} />
          </>
        )}
      </Folded>
    </div>
  );
}

export function Response({ item }: Versioned & { item: Item<"response"> }) {
  const ending = item.finish_reason === null ? "" : (t().stream.finish[item.finish_reason] ?? "");
  return (
    <div class="entry message response" aria-busy={item.open}>
      <Head item={item}>{ending !== "" && <span class="tag bad">{ending}</span>}</Head>
      <Markdown text={item.text} isGrowing={item.open} />
      {item.open && <span class="writing" aria-hidden="true" />}
      <Cut bytes={item.cut_bytes} />
    </div>
  );
}

function Cut({ bytes }: { bytes: number }) {
  return bytes === 0 ? null : <p class="quiet">{t().stream.cutSize(byteSize(bytes))}</p>;
}
