// The words of an allow rule, as a person types them.

/** Characters that a shell interprets; a rule has plain words only. */
const SHELL_CHARACTERS = /[;|&$`<>(){}'"\\*?!#~]/;

export type Words = { words: string[] } | { problem: "empty" } | { problem: "shell_characters"; word: string };

export function parsePrefix(text: string): Words {
  const words = text.trim().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return { problem: "empty" };
  const bad = words.find((word) => SHELL_CHARACTERS.test(word));
  return bad === undefined ? { words } : { problem: "shell_characters", word: bad };
}

/** One absolute path a line. */
export function parseDirectories(text: string): { directories: string[] } | { problem: "empty" } | { problem: "relative"; path: string } {
  const directories = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  if (directories.length === 0) return { problem: "empty" };
  const relative = directories.find((path) => !path.startsWith("/"));
  return relative === undefined ? { directories } : { problem: "relative", path: relative };
}
