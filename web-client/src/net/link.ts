// What a link carries in its fragment, which a browser sends to no server.

export interface LinkContents {
  token: string | null;
  code: string | null;
  session: string | null;
  gate: string | null;
}

const ID = /^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$/;

/** Reads `#token=…&session=…`, `#code=…` or `#session=…&gate=…`; `null` if it is none of these. */
export function parseFragment(hash: string): LinkContents | null {
  const text = hash.replace(/^#/, "");
  if (text === "" || text.startsWith("/")) return null;
  const fields = new URLSearchParams(text);
  const field = (name: string) => {
    const value = fields.get(name)?.trim() ?? "";
    return ID.test(value) ? value : null;
  };
  const contents = { token: field("token"), code: field("code"), session: field("session"), gate: field("gate") };
  const isEmpty = Object.values(contents).every((value) => value === null);
  return isEmpty ? null : contents;
}

/** Takes the link out of the address, so that neither history nor a screenshot keeps its secret. */
export function takeLink(): LinkContents | null {
  const contents = parseFragment(location.hash);
  if (contents !== null) history.replaceState(null, "", location.pathname);
  return contents;
}
