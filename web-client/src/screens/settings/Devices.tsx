// Where a person is signed in.

import type { DeviceList, DeviceListItem } from "@protocol";
import { escapeInvisible } from "../../fold";
import { t } from "../../i18n";
import { announce } from "../../state/announcements";
import { useApp } from "../../ui/context";
import { dateAndTime } from "../../ui/format";
import { ConfirmButton, LoadProblem, ago } from "../parts";
import { useAction, useLoaded } from "../request";

export function Devices() {
  const app = useApp();
  const list = useLoaded("", (signal) => app.api.get<DeviceList>("/api/devices", { signal }));
  const action = useAction();
  const devices = list.value?.devices ?? [];
  const revoke = (device: DeviceListItem) =>
    action.run(async () => {
      await app.api.delete(`/api/devices/${encodeURIComponent(device.id)}`);
      announce(t().devices.revoked(escapeInvisible(device.name)));
      list.reload();
    });
  return (
    <section class="panel">
      <h2>{t().devices.heading}</h2>
      <p class="quiet small">{t().devices.hint}</p>
      <LoadProblem problem={list.problem} onRetry={list.reload} />
      {list.value !== null && devices.length === 0 && <p>{t().devices.none}</p>}
      <ul class="rows">
        {devices.map((device) => (
          <li key={device.id} class="row channel">
            <div class="grow stack tight">
              <strong>{escapeInvisible(device.name)}</strong>
              <span class="quiet small">
                {t().devices.added(dateAndTime(device.created))}
                {device.last_used != null && `, ${t().devices.lastUsed(ago(device.last_used))}`}
              </span>
            </div>
            {device.this_device ? (
              <span class="tag ok">{t().devices.this}</span>
            ) : (
              <ConfirmButton
                label={t().devices.revoke}
                name={t().devices.revokeDevice(escapeInvisible(device.name))}
                question={t().devices.sure}
                disabled={action.busy}
                onConfirm={() => revoke(device)}
              />
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
