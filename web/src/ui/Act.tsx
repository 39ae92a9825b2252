import type { ReactNode } from "react";
import { useRefusal, type Role } from "../shell/may";

interface Props {
  needs: Role;
  why?: string | false | undefined; // why it cannot be done now, whoever asks
  danger?: boolean;
  primary?: boolean;
  atOnce?: boolean; // it asks nothing before: no dialog opens
  onClick: () => void;
  children: ReactNode;
}

/** A button that does something. Where that is not allowed it stays in its place and says why, also to the keyboard. */
export function Act({ needs, why, danger = false, primary = false, atOnce = false, onClick, children }: Props) {
  const refused = useRefusal(needs) || why || "";
  return (
    <button
      type="button"
      className={`btn ${danger ? "btn-danger" : primary ? "btn-primary" : ""}`}
      aria-haspopup={atOnce ? undefined : "dialog"}
      aria-disabled={refused ? true : undefined}
      aria-description={refused || undefined}
      title={refused || undefined}
      onClick={refused ? undefined : onClick}
    >
      {children}
    </button>
  );
}
