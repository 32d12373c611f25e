// Copies of the record to keep.

import { useState } from "preact/hooks";
import { t } from "../../i18n";
import type { SessionConnection } from "../../net/connection";
import { announce } from "../../state/announcements";
import { useApp } from "../../ui/context";
import { saveFile } from "../../ui/save_file";
import { Words } from "../../ui/Words";
import { sessionPath, useAction } from "../request";
import { useSlowTick } from "../slow_tick";
import { fileName, JSON_LINES, readAllLines } from "./download";
import type { DownloadProgress } from "./download";

export function Downloads({ connection }: { connection: SessionConnection }) {
  const app = useApp();
  useSlowTick(connection);
  const [progress, setProgress] = useState<DownloadProgress | null>(null);
  const [stopping, setStopping] = useState<AbortController | null>(null);
  const action = useAction();
  const { session, view } = connection;
  const mayArchive = view.ended !== null && app.device.session === null && app.device.roles.includes("admin");
  const download = () => {
    const controller = new AbortController();
    setStopping(controller);
    action.run(async () => {
      try {
        const { parts, count } = await readAllLines(app.api, session, controller.signal, setProgress);
        saveFile(fileName(session, "messages"), parts, JSON_LINES);
        announce(t().audit.downloaded(count));
      } catch (error) {
        if (!controller.signal.aborted) throw error;
      } finally {
        setProgress(null);
        setStopping(null);
      }
    });
  };
  const archive = () =>
    action.run(async () => {
      saveFile(fileName(session, "archive"), [await app.api.text(sessionPath(session, "archive"))], JSON_LINES);
    });
  return (
    <div class="row">
      <button disabled={action.busy} onClick={download}>
        {t().audit.download}
      </button>
      {mayArchive && (
        <button disabled={action.busy} onClick={archive}>
          {t().audit.archive}
        </button>
      )}
      {mayArchive && (
        <span class="quiet small">
          <Words text={t().audit.archiveHint} />
        </span>
      )}
      {progress !== null && <span class="quiet small">{t().audit.downloading(progress.read, progress.head)}</span>}
      {stopping !== null && <button onClick={() => stopping.abort()}>{t().app.cancel}</button>}
    </div>
  );
}
