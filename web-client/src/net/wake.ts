// When the page has slept or the network has changed, what was open may be dead without saying so.

/** Calls when the page is looked at again, is taken out of the browser's memory, or the network is back. Returns how to stop. */
export function onWake(act: () => void): () => void {
  const onVisible = () => {
    if (document.visibilityState === "visible") act();
  };
  const onShow = (event: PageTransitionEvent) => {
    if (event.persisted) act();
  };
  addEventListener("online", act);
  addEventListener("pageshow", onShow);
  document.addEventListener("visibilitychange", onVisible);
  return () => {
    removeEventListener("online", act);
    removeEventListener("pageshow", onShow);
    document.removeEventListener("visibilitychange", onVisible);
  };
}
