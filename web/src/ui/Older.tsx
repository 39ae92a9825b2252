import { count } from "../lib/format";

interface Props {
  shown: number;
  what: string;
  pending: boolean;
  error: Error | null;
  onClick: () => void;
}

/** Loads older entries of a list. */
export function Older({ shown, what, pending, error, onClick }: Props) {
  return (
    <div className="mt-3 flex flex-wrap items-center justify-center gap-x-4 gap-y-1 text-[13px] text-soft">
      {error ? (
        <span role="alert" className="text-bad">
          {error.message}
        </span>
      ) : (
        <span>
          Showing the newest {count(shown)} {what}.
        </span>
      )}
      <button type="button" className="btn" data-older disabled={pending} onClick={onClick}>
        {pending ? "Loading…" : "Show older"}
      </button>
    </div>
  );
}
