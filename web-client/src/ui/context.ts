import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { App } from "../state/app";

export const AppContext = createContext<App | null>(null);

/** The app, for components below a signed-in screen. */
export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error("this component needs a signed-in app");
  return app;
}
