const paths = {
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  system: "M3 5h18v11H3zM9 20h6M12 16v4",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.5",
  out: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  down: "M6 10l6 6 6-6",
  close: "M6 6l12 12M18 6L6 18",
  fold: "M4 12h4M16 12h4M10 5l-2 14M16 5l-2 14",
  signal: "M4 12a8 8 0 0 1 8-8M8 12a4 4 0 0 1 4-4M12 12l7 7M12 12h5M12 12v5",
  stop: "M7 7h10v10H7z",
  skull: "M12 3l9 16H3zM12 10v4M12 16.5v.5",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  hourglass: "M7 3h10M7 21h10M8 3v4l4 5 4-5V3M8 21v-4l4-5 4 5v4",
  anchor: "M12 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM12 8v13M7 12h10M4 14c0 4 4 7 8 7s8-3 8-7",
  bolt: "M13 3L5 14h6l-1 7 8-11h-6z",
  play: "M8 5l11 7-11 7z",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.8}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden
      className="shrink-0"
    >
      <path d={paths[name]} />
    </svg>
  );
}
