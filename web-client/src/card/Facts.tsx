// What surrounds the command: verdict, purpose, place, files, environment.

import type { ComponentChildren } from "preact";
import type { BoundFile, FileContent } from "@protocol";
import { t } from "../i18n";
import { escapeInvisible } from "../fold";
import type { RequestedAction } from "../fold";
import { names } from "../ui/format";
import { nameOf } from "./model";
import type { CardModel } from "./model";
import { noteIn } from "./notes";

/** Text of others: inert, in one direction, with everything visible. */
export function Quote({ text, code = false }: { text: string; code?: boolean }) {
  const shown = escapeInvisible(text);
  return code ? (
    <code class="said" dir="ltr">
      {shown}
    </code>
  ) : (
    <bdi class="said">{shown}</bdi>
  );
}

export function Row({ label, tone, children }: { label: string; tone?: "careful"; children: ComponentChildren }) {
  return (
    <div class={tone === undefined ? "row-fact" : `row-fact ${tone}`}>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function categoryLabel(card: Pick<CardModel, "category" | "isSensitiveRead">): string {
  return card.isSensitiveRead ? t().card.sensitiveRead : (t().category[card.category] ?? card.category);
}

export function CategoryTag({ card }: { card: Pick<CardModel, "category" | "isSensitiveRead"> }) {
  return <span class={`tag ${card.category}`}>{categoryLabel(card)}</span>;
}

export function Verdict({ card }: { card: CardModel }) {
  const { requested } = card;
  const assessment = requested.assessment;
  return (
    <div class="verdict">
      <p>
        <CategoryTag card={card} />
        {card.risk !== null && <span class={`risk ${card.risk}`}>{t().risk[card.risk] ?? card.risk}</span>}
        {assessment !== null && <Quote text={assessment.reason} />}
        {assessment !== null && <Quote text={`[${assessment.rule}]`} code />}
      </p>
      {requested.hidden > 0 && <p class="careful">{t().card.hidden(requested.hidden)}</p>}
      {requested.cut_bytes > 0 && <p class="careful">{t().card.cut(requested.cut_bytes)}</p>}
      {(assessment?.notes ?? []).map((note) => (
        <p key={note} class="careful">
          <Quote text={noteIn(note)} />
        </p>
      ))}
    </div>
  );
}

/** Where it runs, who wants it and why, with what. */
export function Surroundings({ card }: { card: CardModel }) {
  const { requested } = card;
  const environment = Object.entries(requested.env);
  return (
    <dl class="facts">
      <Row label={t().card.directory}>{card.directory === null ? t().card.sessionDirectory : <Quote text={card.directory} code />}</Row>
      <Row label={t().card.agent}>
        <Quote text={requested.proposer === null ? t().card.someone : nameOf(card, requested.proposer)} />
        <Client card={card} />
      </Row>
      {requested.purpose !== "" && (
        <Row label={t().card.purpose}>
          <Quote text={requested.purpose} />
        </Row>
      )}
      <Row label={t().card.runs}>
        <HowItRuns card={card} />
      </Row>
      <Row label={t().card.degree} {...(requested.degree === undefined ? {} : { tone: "careful" as const })}>
        {t().card.degrees[requested.degree ?? "executed"]}
      </Row>
      {requested.client?.fails_open === true && (
        <Row label={t().card.failsOpen} tone="careful">
          {t().card.failsOpenHint}
        </Row>
      )}
      {requested.driver !== null && (
        <Row label={t().card.driver}>
          <Quote text={nameOf(card, requested.driver)} />
        </Row>
      )}
      {environment.length > 0 && (
        <Row label={t().card.environment} tone="careful">
          {environment.map(([name, value]) => (
            <div key={name}>
              <Quote text={`${name}=${value}`} code />
            </div>
          ))}
        </Row>
      )}
      {(requested.secrets ?? []).length > 0 && (
        <Row label={t().card.secrets} tone="careful">
          <Quote text={names(requested.secrets ?? [])} code /> {t().card.secretsHint}
        </Row>
      )}
      {(requested.files ?? []).length > 0 && (
        <Row label={t().card.files}>
          {(requested.files ?? []).map((file) => (
            <File key={file.path} file={file} content={contentOf(file, requested.file_contents ?? [])} isShown={requested.form !== "tool"} />
          ))}
        </Row>
      )}
    </dl>
  );
}

function Client({ card }: { card: CardModel }) {
  const client = card.requested.client;
  if (client === undefined) return null;
  const words = [client.client, client.version ?? ""].join(" ").trim();
  return (
    <>
      {" · "}
      <Quote text={words} />
      {client.subagent !== undefined && (
        <>
          {" · "}
          {t().card.subagent} <Quote text={client.subagent} />
        </>
      )}
    </>
  );
}

function HowItRuns({ card }: { card: CardModel }) {
  const { requested } = card;
  const form = requested.form === "shell" && requested.degree !== undefined ? "client_shell" : requested.form;
  const stated = requested.call?.stated_category ?? null;
  const words = [
    t().card.forms[form] ?? form,
    ...(stated === null ? [] : [t().card.statedKind(stated)]),
    ...(requested.mode === "normal" ? [] : [t().card.modes[requested.mode] ?? requested.mode]),
    ...(requested.timeout_seconds === null ? [] : [t().card.atMost(requested.timeout_seconds)]),
  ];
  return (
    <>
      {words.join(", ")}
      {card.runner.length > 0 && (
        <>
          {", "}
          {t().card.runner} <Quote text={card.runner.join(" ")} code />
        </>
      )}
    </>
  );
}

/**
 * The contents of the files that a command line uses, such as the script that it runs: as much a part of
 * what is approved as the line itself. Those of a tool call are in the change that it shows.
 */
export function Scripts({ requested }: { requested: RequestedAction }) {
  if (requested.form === "tool") return null;
  const known = (requested.files ?? []).map((file) => [file, contentOf(file, requested.file_contents ?? [])] as const);
  return (
    <>
      {known.map(([file, content]) => content !== null && <Script key={file.path} path={file.path} content={content} />)}
    </>
  );
}

function Script({ path, content }: { path: string; content: string }) {
  const label = t().card.fileContent(escapeInvisible(path));
  return (
    <section class="bound-file" aria-label={label}>
      <p class="small quiet">{label}</p>
      <pre dir="ltr">{escapeInvisible(content)}</pre>
    </section>
  );
}

function contentOf(file: BoundFile, contents: readonly FileContent[]): string | null {
  return contents.find((content) => content.path === file.path)?.text ?? null;
}

function File({ file, content, isShown }: { file: BoundFile; content: string | null; isShown: boolean }) {
  if (file.sha256 === undefined) {
    return (
      <div>
        <Quote text={file.path} code /> {t().card.fileNew}
      </div>
    );
  }
  return (
    <details class="bound-file">
      <summary>
        <Quote text={file.path} code /> {t().card.fileSize(file.bytes)}
      </summary>
      <p class="small quiet">
        {t().card.fileBound} <Quote text={`SHA-256 ${file.sha256}`} code />
      </p>
      {content === null ? <p class="small quiet">{t().card.fileUnknown}</p> : !isShown && <pre dir="ltr">{escapeInvisible(content)}</pre>}
    </details>
  );
}
