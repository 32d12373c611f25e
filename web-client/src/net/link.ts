// What a link carries in its fragment, which a browser sends to no server.

export interface LinkContents {
  token: string | null;
  code: string | null;
  /** The code of a link that makes one device of the person who made it. */
  device: string | null;
  session: string | null;
  gate: string | null;
  /** The secret of a link that is for one vote. */
  vote: string | null;
}

/** A link that carries nothing. */
export const EMPTY_LINK: LinkContents = { token: null, code: null, device: null, session: null, gate: null, vote: null };

const ID = /^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$/;

/** Reads `#token=…&session=…`, `#device=…`, `#join=…`, `#session=…&gate=…` or `#vote=…`; `null` if it is none of these. */
export function parseFragment(hash: string): LinkContents | null {
  const text = hash.replace(/^#/, "");
  if (text === "" || text.startsWith("/")) return null;
  const fields = new URLSearchParams(text);
  const field = (name: string) => {
    const value = fields.get(name)?.trim() ?? "";
    return ID.test(value) ? value : null;
  };
  const contents: LinkContents = {
    token: field("token"),
    code: field("join"),
    device: field("device"),
    session: field("session"),
    gate: field("gate"),
    vote: field("vote"),
  };
  const isEmpty = Object.values(contents).every((value) => value === null);
  return isEmpty ? null : contents;
}

/**
 * Takes the link out of the address, so that no screenshot, reload or bookmark keeps its secret. The
 * browser's history keeps what was opened all the same: that is why a code works once.
 */
export function takeLink(): LinkContents | null {
  const contents = parseFragment(location.hash);
  if (contents !== null) history.replaceState(null, "", location.pathname);
  return contents;
}
