// Addresses that text from others may link to.

const ALLOWED = new Set(["http:", "https:", "mailto:"]);

/** The address as the browser will open it; null if it is not one that may be opened. */
export function safeAddress(address: string): string | null {
  let url: URL;
  try {
    // Without a base, so that nothing becomes an address of this page.
    url = new URL(address.trim());
  } catch {
    return null;
  }
  // A name in an address is there to look like another address.
  if (!ALLOWED.has(url.protocol) || url.username !== "" || url.password !== "") return null;
  return url.href;
}
