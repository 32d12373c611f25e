// Adds a way to be told.

import { useState } from "preact/hooks";
import { t } from "../../i18n";
import { useApp } from "../../ui/context";
import { SelectField } from "../parts";
import { useAction } from "../request";
import type { ChannelKind, NotificationChannel } from "./types";

interface ChannelFormProps {
  kinds: readonly ChannelKind[];
  onAdded(channel: NotificationChannel): void;
  onCancel(): void;
}

export function ChannelForm({ kinds, onAdded, onCancel }: ChannelFormProps) {
  const app = useApp();
  const action = useAction();
  const [kind, setKind] = useState<ChannelKind>(kinds[0] ?? "webhook");
  const [label, setLabel] = useState("");
  const [target, setTarget] = useState("");
  const [secret, setSecret] = useState("");
  const add = () =>
    action.run(async () => {
      const body = { kind, label: label.trim() || t().notify.kinds[kind], target: target.trim() };
      const hasSecret = kind === "ntfy" && secret.trim() !== "";
      onAdded(await app.api.post<NotificationChannel>("/api/notifications/channels", hasSecret ? { ...body, secret: secret.trim() } : body));
    });
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        add();
      }}
    >
      <SelectField<ChannelKind> label={t().notify.kind} value={kind} options={kinds.map((known) => [known, t().notify.kinds[known] ?? known] as const)} onChange={setKind} />
      <label>
        {t().notify.targets[kind]}
        <input
          type={kind === "email" ? "email" : "url"}
          value={target}
          required
          maxLength={2000}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          onInput={(event) => setTarget(event.currentTarget.value)}
        />
      </label>
      {kind === "ntfy" && (
        <label>
          {t().notify.secret}
          <input type="password" value={secret} autocomplete="off" onInput={(event) => setSecret(event.currentTarget.value)} />
        </label>
      )}
      <label>
        {t().notify.label}
        <input value={label} maxLength={64} placeholder={t().notify.kinds[kind]} onInput={(event) => setLabel(event.currentTarget.value)} />
      </label>
      <div class="row">
        <button class="primary" disabled={action.busy || target.trim() === ""}>
          {t().notify.save}
        </button>
        <button type="button" onClick={onCancel}>
          {t().app.cancel}
        </button>
      </div>
    </form>
  );
}
