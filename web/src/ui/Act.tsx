import type { ReactNode } from "react";
import { useRefusal, type Role } from "../shell/may";

interface Props {
  needs: Role;
  why?: string | false | undefined; // why the action is unavailable now, for every role
  danger?: boolean;
  primary?: boolean;
  atOnce?: boolean; // no dialog opens
  onClick: () => void;
  children: ReactNode;
}

/** A button for an action. If the action is unavailable, the button stays focusable and its description has the reason. */
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
