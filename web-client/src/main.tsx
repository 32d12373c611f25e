// Starts the page: who is it, then the screens.

import { render } from "preact";
import { Boundary } from "./ui/Boundary";
import { Root, startSignIn } from "./ui/Root";
import { applyPreferences } from "./state/preferences";
import { registerServiceWorker } from "./state/service_worker";
import "./style.css";

async function start(element: HTMLElement): Promise<void> {
  const signIn = startSignIn();
  await applyPreferences();
  render(
    <Boundary kind="screen" of={null}>
      <Root signIn={signIn} />
    </Boundary>,
    element,
  );
}

const element = document.getElementById("app");
if (element !== null) start(element).catch(() => {
    // Not among the strings, for those are what did not arrive.
    element.textContent = "The words of this page did not arrive. Check the connection, then reload it.";
  });
void registerServiceWorker();
