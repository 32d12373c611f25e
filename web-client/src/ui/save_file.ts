// Saves text as a file on the device of whoever reads it.

export function saveFile(name: string, parts: BlobPart[], type = "text/plain;charset=utf-8"): void {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
