import type { FormEvent, ReactNode } from "react";

interface Props {
  error: Error | null;
  pending: boolean;
  onSubmit: () => void;
  onClose: () => void;
  act: string;
  danger?: boolean;
  children: ReactNode;
}

/** What a dialog asks before it does something: fields, what went wrong, and the two ways out. */
export function Form({ error, pending, onSubmit, onClose, act, danger = false, children }: Props) {
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (!pending) onSubmit();
  };
  return (
    <form onSubmit={submit}>
      {children}
      <p role="alert" className="mt-2 min-h-5 break-words text-bad">
        {error?.message}
      </p>
      <div className="mt-2 flex justify-end gap-2">
        <button type="button" className="btn" onClick={onClose}>
          Back
        </button>
        <button type="submit" className={`btn ${danger ? "btn-solid-danger" : "btn-primary"}`} disabled={pending}>
          {act}
        </button>
      </div>
    </form>
  );
}
