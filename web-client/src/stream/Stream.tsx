// The stream: everything that happened in a session, the newest at the end.

import { useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { t } from "../i18n";
import { Boundary } from "../ui/Boundary";
import { Icon } from "../ui/Icon";
import { commandOf, Entry, estimatedHeight, isSameCommand } from "./Entry";
import { isOtherDay } from "./parts";
import { SourceContext } from "./source";
import type { StreamSource } from "./source";
import { VirtualList } from "./VirtualList";

export function Stream({ source, header }: { source: StreamSource; header?: ComponentChildren }) {
  const [isFollowing, setFollowing] = useState(true);
  const list = useRef<VirtualList>(null);
  void source.tick.value;
  const { view } = source;
  const { items, dropped } = view.stream;
  const itemAt = (index: number) => items[index - dropped];
  return (
    <SourceContext.Provider value={source}>
      <div class="stream" data-entries={dropped + items.length}>
        <VirtualList
          ref={list}
          class="stream-list"
          label={t().session.stream}
          first={dropped}
          end={dropped + items.length}
          header={header}
          onFollowing={setFollowing}
          estimate={(index) => {
            const item = itemAt(index);
            return item === undefined ? 0 : estimatedHeight(item);
          }}
          render={(index) => {
            const item = itemAt(index);
            if (item === undefined) return null;
            const command = commandOf(item);
            const commandVersion = command === null ? 0 : (view.proposal(command)?.version ?? 0);
            const before = itemAt(index - 1);
            const isFirstOfDay = before !== undefined && isOtherDay(item.at, before.at);
            const isContinued = before !== undefined && isSameCommand(item, before);
            return (
              <Boundary kind="entry" of={item.version + commandVersion}>
                <Entry item={item} version={item.version} commandVersion={commandVersion} isFirstOfDay={isFirstOfDay} isContinued={isContinued} />
              </Boundary>
            );
          }}
        />
        {items.length === 0 && <p class="center stream-empty">{t().session.empty}</p>}
        {!isFollowing && (
          <button class="newest" onClick={() => list.current?.follow()}>
            <Icon name="down" />
            {t().session.newBelow}
          </button>
        )}
      </div>
    </SourceContext.Provider>
  );
}
