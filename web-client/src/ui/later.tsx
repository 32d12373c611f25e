// Parts of the page whose code is loaded when they are first drawn, so that the first card is there sooner.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { loadLaterTexts, t } from "../i18n";

type State<P> = { kind: "loading" } | { kind: "ready"; component: ComponentType<P> } | { kind: "failed" };

/** A component whose code may be fetched before it is drawn. */
export type LaterComponent<P> = ComponentType<P> & { load(): Promise<ComponentType<P>> };

/** A component that is fetched when it is first drawn; `Until` stands in its place until it is here, and if it never comes. */
export function later<P extends object>(fetchIt: () => Promise<ComponentType<P>>, Until?: ComponentType<P>): LaterComponent<P> {
  let loaded: ComponentType<P> | null = null;
  const load = async () => (loaded ??= await fetchIt());
  const Later = (props: P) => {
    const [state, setState] = useState<State<P>>(loaded === null ? { kind: "loading" } : { kind: "ready", component: loaded });
    useEffect(() => {
      if (state.kind !== "loading") return;
      let isHere = true;
      load().then(
        (component) => {
          if (isHere) setState({ kind: "ready", component });
        },
        () => {
          if (isHere) setState({ kind: "failed" });
        },
      );
      return () => {
        isHere = false;
      };
    }, [state.kind]);
    if (Until !== undefined && state.kind !== "ready") return <Until {...props} />;
    switch (state.kind) {
      case "loading":
        return <p class="center quiet">{t().app.loading}</p>;
      case "ready":
        return <state.component {...props} />;
      case "failed":
        return <NotLoaded onRetry={() => setState({ kind: "loading" })} />;
    }
  };
  return Object.assign(Later, { load });
}

/** The same for a screen that says what is among the `laterTexts`. */
export function laterWithTexts<P extends object>(fetchIt: () => Promise<ComponentType<P>>, Until?: ComponentType<P>): LaterComponent<P> {
  return later(async () => (await Promise.all([fetchIt(), loadLaterTexts()]))[0], Until);
}

/** The network is gone, or the server has another version of the page. */
function NotLoaded({ onRetry }: { onRetry(): void }) {
  return (
    <div class="center" role="alert">
      <p>{t().app.notLoaded}</p>
      <div class="stack">
        <button onClick={onRetry}>{t().app.retry}</button>
        <button onClick={() => location.reload()}>{t().app.reload}</button>
      </div>
    </div>
  );
}
