/** How a part of the page is updated: a dot and a word; the tooltip explains the word. */
export function Coming({ text, dot, title, state }: { text: string; dot: string; title: string; state?: string }) {
  return (
    <span role="status" data-following={state} title={title} className="flex items-center gap-1.5 rounded-full border border-line px-2.5 py-0.5 text-xs">
      <span className={`size-1.5 rounded-full ${dot}`} aria-hidden />
      {text}
    </span>
  );
}
