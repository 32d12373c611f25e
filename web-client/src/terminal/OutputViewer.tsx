// The whole output of a command: page by page, searched on the server, or saved as a file.

import { useEffect, useRef, useState } from "preact/hooks";
import type { OutputLine, OutputPage, OutputStream } from "@protocol";
import type { Proposal } from "../fold";
import { t } from "../i18n";
import { announce } from "../state/announcements";
import { useSource } from "../stream/source";
import type { Versioned } from "../stream/source";
import { Icon } from "../ui/Icon";
import { messageOf } from "../ui/message";
import { saveFile } from "../ui/save_file";
import { ansiLines } from "./ansi";
import { AnsiText } from "./AnsiText";
import { PAGE_LINES, readAll, readRequest } from "./output_pages";
import type { PageRequest } from "./output_pages";

/** Lines shown before one that a search found. */
const LINES_BEFORE = 10;

interface Shown {
  request: PageRequest;
  page: OutputPage;
}

export function OutputViewer({ proposal, onClose }: Versioned & { proposal: Proposal; onClose(): void }) {
  const { readOutput } = useSource();
  const dialog = useRef<HTMLDialogElement>(null);
  const lines = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<Shown | null>(null);
  /** Where the pages before this one begin. */
  const [before, setBefore] = useState<PageRequest["from"][]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);

  async function show(request: PageRequest, trail: PageRequest["from"][]): Promise<void> {
    setBusy(true);
    try {
      setShown({ request, page: await readOutput(readRequest(request)) });
      setBefore(trail);
      setProblem(null);
      if (lines.current !== null) lines.current.scrollTop = 0;
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setBusy(false);
    }
  }

  const first: PageRequest = { ref: proposal.id, stream: null, find: "", from: 0 };
  useEffect(() => {
    dialog.current?.showModal();
    void show(first, []);
  }, []);

  const request = shown?.request ?? first;
  return (
    <dialog class="viewer" ref={dialog} aria-label={t().terminal.viewer(proposal.shown)} onClose={onClose}>
      <div class="viewer-frame">
        <header class="viewer-head">
          <h2 dir="ltr">{t().terminal.viewer(proposal.shown)}</h2>
          <button class="plain" aria-label={t().app.close} onClick={() => dialog.current?.close()}>
            <Icon name="cross" />
          </button>
        </header>
        <SearchForm request={request} isBusy={isBusy} onSearch={(search) => void show({ ...first, ...search }, [])} />
        {problem !== null && (
          <p class="problem" role="alert">
            {t().app.failed(problem)}
          </p>
        )}
        <div class="viewer-lines" ref={lines} tabIndex={0} role="region" aria-label={t().stream.output} aria-busy={isBusy} dir="ltr">
          {shown !== null && <Lines shown={shown} onLine={(number) => void show({ ...first, from: Math.max(0, number - LINES_BEFORE) }, [])} />}
        </div>
        <footer class="viewer-foot">
          <Paging shown={shown} before={before} isBusy={isBusy} onShow={(next, trail) => void show(next, trail)} />
          <SaveButton proposal={proposal} />
        </footer>
      </div>
    </dialog>
  );
}

function SearchForm(props: { request: PageRequest; isBusy: boolean; onSearch(search: Pick<PageRequest, "find" | "stream">): void }) {
  const { request, isBusy, onSearch } = props;
  const [find, setFind] = useState("");
  useEffect(() => setFind(request.find), [request.find]);
  return (
    <form
      class="viewer-search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        onSearch({ find, stream: request.stream });
      }}
    >
      <input type="search" aria-label={t().stream.searchOutput} placeholder={t().stream.searchOutput} value={find} onInput={(event) => setFind(event.currentTarget.value)} />
      <select
        aria-label={t().terminal.whichStream}
        value={request.stream ?? "both"}
        onChange={(event) => {
          const { value } = event.currentTarget;
          onSearch({ find, stream: value === "both" ? null : (value as OutputStream) });
        }}
      >
        <option value="both">{t().terminal.streams.both}</option>
        <option value="stdout">{t().terminal.streams.stdout}</option>
        <option value="stderr">{t().terminal.streams.stderr}</option>
      </select>
      <button disabled={isBusy}>{t().stream.find}</button>
    </form>
  );
}

function Lines({ shown, onLine }: { shown: Shown; onLine(number: number): void }) {
  const { page, request } = shown;
  if (page.lines.length === 0) {
    return <p class="center">{request.find === "" ? t().stream.noOutput : page.next === undefined ? t().stream.nothingFound : t().terminal.nothingYet}</p>;
  }
  return (
    <>
      {page.lines.map((line) => (
        <ViewerLine key={`${line.stream}-${line.number}`} line={line} onNumber={request.find === "" ? null : () => onLine(line.number)} />
      ))}
    </>
  );
}

function ViewerLine({ line, onNumber }: { line: OutputLine; onNumber: (() => void) | null }) {
  const number = line.number + 1;
  return (
    <div class={`output-row ${line.stream}`}>
      {onNumber === null ? (
        <span class="number">{number}</span>
      ) : (
        <button class="number plain" aria-label={t().terminal.showAround(number)} onClick={onNumber}>
          {number}
        </button>
      )}
      <span class={line.stream === "stderr" ? "margin err" : "margin"}>{t().stream[line.stream]}</span>
      <span class="output-text">
        {ansiLines(line.text).map((text, index) => (
          <AnsiText key={index} line={text} />
        ))}
      </span>
    </div>
  );
}

interface PagingProps {
  shown: Shown | null;
  before: PageRequest["from"][];
  isBusy: boolean;
  onShow(request: PageRequest, before: PageRequest["from"][]): void;
}

function Paging({ shown, before, isBusy, onShow }: PagingProps) {
  if (shown === null) return null;
  const { page, request } = shown;
  const first = page.lines[0]?.number ?? 0;
  const isSearch = request.find !== "";
  const previous = () => {
    const back = before.at(-1) ?? Math.max(0, first - PAGE_LINES);
    onShow({ ...request, from: back }, before.slice(0, -1));
  };
  const isAtStart = isSearch ? before.length === 0 : first === 0;
  return (
    <div class="paging" role="group" aria-label={t().terminal.pages}>
      <button disabled={isBusy || isAtStart} onClick={() => onShow({ ...request, from: 0 }, [])}>
        {t().terminal.first}
      </button>
      <button disabled={isBusy || isAtStart} onClick={previous}>
        {t().terminal.previous}
      </button>
      <span class="small" role="status">
        {isSearch ? t().terminal.found(page.lines.length) : t().terminal.range(first + 1, first + page.lines.length, page.total_lines)}
      </span>
      <button disabled={isBusy || page.next === undefined} onClick={() => onShow({ ...request, from: page.next ?? 0 }, [...before, request.from])}>
        {t().terminal.next}
      </button>
      <button disabled={isBusy} onClick={() => onShow({ ...request, from: "end" }, [])}>
        {t().terminal.last}
      </button>
    </div>
  );
}

function SaveButton({ proposal }: { proposal: Proposal }) {
  const { readOutput } = useSource();
  const [progress, setProgress] = useState<string | null>(null);
  const stopping = useRef(new AbortController());
  useEffect(() => () => stopping.current.abort(), []);

  async function save(): Promise<void> {
    try {
      const show = (lines: number, total: number) => setProgress(t().terminal.reading(lines, total));
      const { parts, isCut } = await readAll(readOutput, proposal.id, show, stopping.current.signal);
      saveFile(`output-${proposal.id.slice(0, 13)}.txt`, parts);
      if (isCut) announce(t().terminal.savedPart, "error");
    } catch (error) {
      if (!stopping.current.signal.aborted) announce(t().app.failed(messageOf(error)), "error");
    } finally {
      setProgress(null);
    }
  }

  return (
    <button disabled={progress !== null} onClick={() => void save()}>
      {progress ?? t().app.download}
    </button>
  );
}
