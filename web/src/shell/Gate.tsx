import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, type ReactNode } from "react";
import { api, ApiError, whenUnauthorized } from "../api/client";
import { live } from "../api/live";
import { keys, meQuery } from "../api/queries";
import { SignIn } from "./SignIn";

/** Shows the page to who may see it, and the sign-in to everybody else. Hints flow only while somebody is signed in. */
export function Gate({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const me = useQuery(meQuery);
  const stranger = me.error instanceof ApiError && me.error.status === 401;
  const inside = !stranger && !me.isPending;

  useEffect(
    () =>
      whenUnauthorized(() => {
        // The cookie ran out or was revoked while the page was open: ask who we are, and the sign-in shows.
        const state = client.getQueryState(keys.me);
        if (state?.status === "success") void client.resetQueries({ queryKey: keys.me });
      }),
    [client],
  );
  useEffect(() => {
    if (!stranger) return;
    // Who signs in does so for all tabs: one that shows the sign-in finds that out when somebody comes back to it.
    const again = () => {
      if (!document.hidden) void api.me().then(() => client.resetQueries(), () => {});
    };
    document.addEventListener("visibilitychange", again);
    return () => document.removeEventListener("visibilitychange", again);
  }, [client, stranger]);
  useEffect(() => (inside ? live.start(client) : undefined), [client, inside]);

  if (me.isPending) return null;
  return stranger ? <SignIn /> : children;
}
