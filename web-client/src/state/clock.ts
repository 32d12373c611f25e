// A clock for countdowns: one timer for the whole page, only while the page is seen.

import { signal } from "@preact/signals";

export const second = signal(Date.now());

setInterval(() => {
  if (document.visibilityState === "visible") second.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => {
  second.value = Date.now();
});
