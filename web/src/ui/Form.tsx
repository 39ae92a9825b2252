import { useEffect, useRef, type FormEvent, type ReactNode } from "react";

interface Props {
  error: Error | null;
  at?: unknown; // changes with each failed submit; then the first invalid field gets the focus
  pending: boolean;
  onSubmit: () => void;
  onClose: () => void;
  act: string;
  danger?: boolean;
  children: ReactNode;
}

/** The form of a dialog: fields, an error, and the buttons Back and submit. */
export function Form({ error, at, pending, onSubmit, onClose, act, danger = false, children }: Props) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (at) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [at]);
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (!pending) onSubmit();
  };
  return (
    <form ref={form} noValidate onSubmit={submit}>
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
