// Other ways to be told: a webhook, ntfy, Slack, Discord, e-mail.

import { useState } from "preact/hooks";
import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import { announce } from "../../state/announcements";
import { channelOfThisBrowser } from "../../state/push_state";
import { useApp } from "../../ui/context";
import { dateAndTime } from "../../ui/format";
import { CheckField, ConfirmButton, CopyButton, ago } from "../parts";
import { useAction } from "../request";
import { ChannelForm } from "./ChannelForm";
import type { ChannelTest, NotificationChannel, NotificationSettings } from "./types";

export function Channels({ settings, onChanged }: { settings: NotificationSettings; onChanged(): void }) {
  const [isAdding, setAdding] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  // This browser's own is turned on and off above.
  const channels = settings.channels.filter((channel) => channel.id !== channelOfThisBrowser());
  const kinds = settings.kinds.filter((kind) => kind !== "push");
  const added = (channel: NotificationChannel) => {
    setAdding(false);
    setSecret(channel.secret ?? null);
    announce(t().notify.added(escapeInvisible(channel.label)));
    onChanged();
  };
  return (
    <section class="panel">
      <h3>{t().notify.channels}</h3>
      {channels.length === 0 && <p class="quiet">{t().notify.channelsNone}</p>}
      <ul class="rows">
        {channels.map((channel) => (
          <Channel key={channel.id} channel={channel} onChanged={onChanged} />
        ))}
      </ul>
      {secret !== null && <Secret text={secret} onDone={() => setSecret(null)} />}
      {isAdding ? (
        <ChannelForm kinds={kinds} onAdded={added} onCancel={() => setAdding(false)} />
      ) : (
        kinds.length > 0 && (
          <button class="fit" onClick={() => setAdding(true)}>
            {t().notify.add}
          </button>
        )
      )}
    </section>
  );
}

function Channel({ channel, onChanged }: { channel: NotificationChannel; onChanged(): void }) {
  const app = useApp();
  const action = useAction();
  const label = escapeInvisible(channel.label);
  const path = `/api/notifications/channels/${encodeURIComponent(channel.id)}`;
  const enable = (enabled: boolean) =>
    action.run(async () => {
      await app.api.patch(path, { enabled });
      onChanged();
    });
  const test = () =>
    action.run(async () => {
      const result = await app.api.post<ChannelTest | undefined>(`${path}/test`, {});
      if (result?.delivered === false) announce(t().notify.lastError(escapeInvisible(result.error ?? "")), "error");
      else announce(t().notify.tested(label));
      onChanged();
    });
  const remove = () =>
    action.run(async () => {
      await app.api.delete(path);
      announce(t().notify.removed(label));
      onChanged();
    });
  return (
    <li class="stack channel">
      <div class="row">
        <div class="grow stack tight">
          <strong>{label}</strong>
          <span class="quiet small">
            {t().notify.kinds[channel.kind] ?? channel.kind}: {escapeInvisible(channel.target)}
          </span>
          {channel.last_delivery != null && (
            <span class="quiet small" title={dateAndTime(channel.last_delivery)}>
              {t().notify.lastDelivery(ago(channel.last_delivery))}
            </span>
          )}
          {channel.last_error != null && <span class="small bad-text">{t().notify.lastError(escapeInvisible(channel.last_error))}</span>}
        </div>
        <CheckField label={t().notify.enabled} name={t().notify.enabledChannel(label)} checked={channel.enabled} disabled={action.busy} onChange={enable} />
      </div>
      <div class="row">
        <button aria-label={t().notify.testChannel(label)} disabled={action.busy} onClick={test}>
          {t().notify.test}
        </button>
        <ConfirmButton label={t().notify.remove} name={t().notify.removeChannel(label)} question={t().notify.removeSure} disabled={action.busy} onConfirm={remove} />
      </div>
    </li>
  );
}

function Secret({ text, onDone }: { text: string; onDone(): void }) {
  return (
    <div class="banner stack">
      <p>{t().notify.secretShown}</p>
      <code>{text}</code>
      <div class="row">
        <CopyButton text={text} />
        <button onClick={onDone}>{t().share.done}</button>
      </div>
    </div>
  );
}
