import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, type ReactNode } from "react";
import { api, ApiError, whenUnauthorized } from "../api/client";
import { live } from "../api/live";
import { keys, meQuery } from "../api/queries";
import { SignIn } from "./SignIn";

/** Shows the page to a signed-in user, otherwise the sign-in form. Hints are requested only while a user is signed in. */
export function Gate({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const me = useQuery(meQuery);
  const signedOut = me.error instanceof ApiError && me.error.status === 401;
  const inside = !signedOut && !me.isPending;

  useEffect(
    () =>
      whenUnauthorized(() => {
        // The cookie expired or was revoked while the page was open. Reading the identity again shows the sign-in form.
        const state = client.getQueryState(keys.me);
        if (state?.status === "success") void client.resetQueries({ queryKey: keys.me });
      }),
    [client],
  );
  useEffect(() => {
    if (!signedOut) return;
    // A sign-in is valid for all tabs. A tab with the sign-in form checks that when it becomes visible.
    const again = () => {
      if (!document.hidden) void api.me().then(() => client.resetQueries(), () => {});
    };
    document.addEventListener("visibilitychange", again);
    return () => document.removeEventListener("visibilitychange", again);
  }, [client, signedOut]);
  useEffect(() => (inside ? live.start(client) : undefined), [client, inside]);

  if (me.isPending) return null;
  return signedOut ? <SignIn /> : children;
}
