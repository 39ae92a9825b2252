import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { without } from "../lib/format";
import { Icon } from "./Icon";

interface Props {
  next: string | null;
  after: string | undefined;
  /** The page before is still shown, and next leads to the one that is being read. */
  before?: boolean;
}

/** Newer and older pages of a list whose page token lives in the address as "after". */
export function Pager({ next, after, before = false }: Props) {
  const navigate = useNavigate();
  // Tokens only lead onwards, so the way back is what we came by. After a reload it is short: back means the newest page.
  const [way, setWay] = useState<(string | undefined)[]>([]);
  const go = (token: string | undefined) =>
    void navigate({
      to: ".",
      search: ((search: Record<string, unknown>) => ({ ...without(search, "after"), ...(token && { after: token }) })) as never,
    });
  if (!next && !after) return <div className="h-14" />;
  return (
    <nav aria-label="Pagination" className="flex h-14 items-center justify-end gap-2">
      <button
        type="button"
        className="btn"
        disabled={!after}
        onClick={() => {
          go(way.at(-1));
          setWay(way.slice(0, -1));
        }}
      >
        <Icon name="left" /> Newer
      </button>
      <button
        type="button"
        className="btn"
        disabled={!next}
        aria-disabled={before || undefined}
        onClick={() => {
          if (before) return; // the page it would lead to is on its way, and would be in the way back twice
          setWay([...way, after]);
          go(next ?? undefined);
        }}
      >
        Older <Icon name="right" />
      </button>
    </nav>
  );
}
