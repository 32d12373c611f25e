/** A text in which `words like these` are commands or names of files. */
export function Words({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 === 0 ? part : <code key={at}>{part}</code>))}</>;
}
