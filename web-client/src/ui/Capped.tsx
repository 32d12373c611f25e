// The first items of a long list, and a button for more.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../i18n";

export function Capped<T>({ items, size, children }: { items: readonly T[]; size: number; children(shown: readonly T[]): ComponentChildren }) {
  const [limit, setLimit] = useState(size);
  return (
    <>
      {children(items.slice(0, limit))}
      {items.length > limit && (
        <button type="button" class="wide" onClick={() => setLimit(limit + size)}>
          {t().app.more}
        </button>
      )}
    </>
  );
}
