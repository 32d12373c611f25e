// What is wrong with the record of a session, and what a person should know of it once.

import { t } from "../i18n";
import type { RecordNotice } from "../net/head_memory";
import { useApp } from "../ui/context";
import { dateAndTime } from "../ui/format";
import { Icon } from "../ui/Icon";
import { recordProblemText } from "../ui/record_problem";

export function RecordNotices({ session }: { session: string }) {
  const app = useApp();
  const problem = app.recordProblems.value.get(session);
  const notice = app.recordNotices.value.get(session);
  return (
    <>
      {problem !== undefined && (
        <p class="problem" role="alert">
          <Icon name="warning" /> {recordProblemText(problem)}
        </p>
      )}
      {notice !== undefined && (
        <div class="banner row" role="status">
          <p class="grow">{noticeText(notice)}</p>
          <button type="button" onClick={() => app.dismissNotice(session)}>
            {t().app.close}
          </button>
        </div>
      )}
    </>
  );
}

function noticeText(notice: RecordNotice): string {
  const words = t().session.record;
  switch (notice.kind) {
    case "restored":
      return words.restored(dateAndTime(notice.at), notice.seen);
    case "other_key":
      return words.other_key;
  }
}
