// Follows the route, as the frame does.

import { useEffect, useState } from "preact/hooks";
import { route } from "../../src/state/route";
import type { Route } from "../../src/state/route";

export function useRoute(): Route {
  const [open, setOpen] = useState(route.peek());
  useEffect(() => route.subscribe(setOpen), []);
  return open;
}
