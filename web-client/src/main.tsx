// Starts the page: who is it, then the screens.

import { render } from "preact";
import { Boundary } from "./ui/Boundary";
import { Root } from "./ui/Root";
import { applyPreferences } from "./state/preferences";
import { registerServiceWorker } from "./state/service_worker";
import "./style.css";

applyPreferences();
const element = document.getElementById("app");
if (element !== null) render(
    <Boundary kind="screen" of={null}>
      <Root />
    </Boundary>,
    element,
  );
void registerServiceWorker();
