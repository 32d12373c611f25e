// The few icons of the page, drawn in the colour of the text around them.

const PATHS = {
  inbox: "M4 13h4l2 3h4l2-3h4M5 5h14l1 8v6H4v-6z",
  list: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  gear: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM19 12l2-1-1-3-2 .4-1.4-1.4.4-2-3-1-1 2h-2l-1-2-3 1 .4 2L7 8.4 5 8l-1 3 2 1v1l-2 1 1 3 2-.4 1.4 1.4-.4 2 3 1 1-2h2l1 2 3-1-.4-2 1.4-1.4 2 .4 1-3-2-1z",
  back: "M15 5l-7 7 7 7",
  next: "M9 5l7 7-7 7",
  check: "M5 13l4 4L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  pencil: "M4 20l4-1L19 8l-3-3L5 16z",
  down: "M6 9l6 6 6-6",
  stop: "M7 7h10v10H7z",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
