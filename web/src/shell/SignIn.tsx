import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ApiError } from "../api/client";
import { useTitle } from "../ui/Page";
import { Logo } from "./Logo";

export function SignIn() {
  useTitle("Sign in");
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const signIn = useMutation({
    mutationFn: () => api.signIn(token.trim()),
    onSuccess: () => client.resetQueries(),
  });
  const refused = signIn.error instanceof ApiError && (signIn.error.status === 401 || signIn.error.status === 403);
  return (
    <main className="grid min-h-dvh place-items-center p-4">
      <form
        className="card w-full max-w-sm p-7 shadow-card"
        onSubmit={(e) => {
          e.preventDefault();
          if (token.trim()) signIn.mutate();
        }}
      >
        <Logo />
        <h1 className="mt-5 text-lg font-semibold">Sign in</h1>
        <p className="mt-1 text-soft">
          Enter an access token. The app printed one at its first start and saved it in the file <code className="font-mono text-[13px]">token</code> in its
          data directory.
        </p>
        <label className="mt-5 block">
          <span className="label">Token</span>
          <input
            type="password"
            autoFocus
            autoComplete="current-password"
            spellCheck={false}
            className="field mt-1 font-mono"
            placeholder="sjn_…"
            value={token}
            onChange={(e) => setToken(e.target.value)}
            aria-invalid={refused}
            aria-describedby="refusal"
          />
        </label>
        <p id="refusal" role="alert" className="mt-2 min-h-5 text-bad">
          {signIn.error && (refused ? "The app rejected this token." : signIn.error.message)}
        </p>
        <button type="submit" className="btn btn-primary mt-1 w-full" disabled={!token.trim() || signIn.isPending}>
          {signIn.isPending ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}
