// A line of coloured text.

import type { AnsiLine, Style } from "./ansi";
import { PLAIN } from "./ansi";
import { BACKGROUND, css, FOREGROUND, readable, rgbOf } from "./colours";

export function AnsiText({ line }: { line: AnsiLine }) {
  return (
    <>
      {line.map((span, index) =>
        span.style === PLAIN ? (
          span.text
        ) : (
          <span key={index} class={classesOf(span.style)} style={coloursOf(span.style)}>
            {span.text}
          </span>
        ),
      )}
    </>
  );
}

function classesOf(style: Style): string {
  const names = ["bold", "dim", "italic", "underline", "strike"] as const;
  return names.filter((name) => style[name]).join(" ");
}

function coloursOf(style: Style): { color?: string; backgroundColor?: string } {
  if (style.colour === null && !style.reverse) return {};
  const colour = readable(rgbOf(style.colour, FOREGROUND));
  return style.reverse ? { color: css(BACKGROUND), backgroundColor: css(colour) } : { color: css(colour) };
}
