// What the page keeps in this browser. Everything read is checked, because older versions and
// other hands may have written it; a browser that keeps nothing only forgets sooner.

const PREFIX = "pvp.";

/** The name under which the browser keeps it. */
export function storageKey(key: string): string {
  return PREFIX + key;
}

export function load<T>(key: string, check: (value: unknown) => T | null): T | null {
  try {
    const text = localStorage.getItem(PREFIX + key);
    return text === null ? null : check(JSON.parse(text));
  } catch {
    return null;
  }
}

/** Returns whether it was kept: private windows and full stores refuse. */
export function save(key: string, value: unknown): boolean {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** Whether there is room for a little more. */
export function canSave(): boolean {
  const isKept = save("probe", "x".repeat(1024));
  forget("probe");
  return isKept;
}

export function forget(key: string): void {
  try {
    localStorage.removeItem(PREFIX + key);
  } catch {
    // Nothing was kept then.
  }
}

/** Every key that begins so, without the common prefix. */
export function keysWith(start: string): string[] {
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX + start));
    return keys.map((key) => key.slice(PREFIX.length));
  } catch {
    return [];
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
