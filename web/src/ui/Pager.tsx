import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { without } from "../lib/format";
import { Icon } from "./Icon";

interface Props {
  next: string | null;
  after: string | undefined;
  /** The previous page is still shown, and next is the page that is being loaded. */
  before?: boolean;
}

/** Links to newer and older pages of a list. The URL has the page token as "after". */
export function Pager({ next, after, before = false }: Props) {
  const navigate = useNavigate();
  // Page tokens only lead to older pages, so the visited tokens are the way back. After a reload they are lost, and back opens the newest page.
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
          if (before) return; // the page is being loaded; a second click would add its token twice
          setWay([...way, after]);
          go(next ?? undefined);
        }}
      >
        Older <Icon name="right" />
      </button>
    </nav>
  );
}
