import { useId, type ReactNode } from "react";

/** Attributes that a field passes to its control. */
export interface Control {
  id: string;
  className: string;
  "aria-invalid": true | undefined;
  "aria-describedby": string | undefined;
}

interface Props {
  label: string;
  hint?: ReactNode;
  error?: string;
  mono?: boolean;
  className?: string;
  children: (control: Control) => ReactNode;
}

/** A control with its label above and an error or a hint below. */
export function Field({ label, hint, error = "", mono = false, className = "", children }: Props) {
  const id = useId();
  const note = error || hint ? `${id}-note` : undefined;
  return (
    <div className={`min-w-0 ${className}`}>
      <label htmlFor={id} className="label block">
        {label}
      </label>
      <div className="mt-1">
        {children({
          id,
          className: `field ${mono ? "font-mono text-[13px]" : ""} ${error ? "border-bad" : ""}`,
          "aria-invalid": error ? true : undefined,
          "aria-describedby": note,
        })}
      </div>
      {note && (
        <p id={note} role={error ? "alert" : undefined} data-fault={error ? label : undefined} className={`mt-1 text-xs break-words ${error ? "text-bad" : "text-faint"}`}>
          {error || hint}
        </p>
      )}
    </div>
  );
}
