/** How what a part of the page shows comes: a dot, and a word with its meaning for who asks. */
export function Coming({ text, dot, title, state }: { text: string; dot: string; title: string; state?: string }) {
  return (
    <span role="status" data-following={state} title={title} className="flex items-center gap-1.5 rounded-full border border-line px-2.5 py-0.5 text-xs">
      <span className={`size-1.5 rounded-full ${dot}`} aria-hidden />
      {text}
    </span>
  );
}
