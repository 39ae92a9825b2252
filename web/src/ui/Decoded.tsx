import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState, type ReactNode } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { Json } from "../api/types";
import { decodeBy, Refused, replaceSealed, sealedIn, type Decoded, type Sealed } from "../lib/codec";
import { useNamespace } from "../shell/namespace";

const tokenName = (endpoint: string) => `sojourn.codec-token ${endpoint}`;
/** The event after an endpoint has accepted another access token: the refused values of the page are decoded again. */
const tokenAccepted = "sojourn.codec-token-accepted";

interface Outcome {
  of: Sealed[];
  values?: Decoded[];
  refused?: string;
  error?: string;
}

/** A value whose encoded payloads are decoded by the namespace's codec endpoint, and a note about payloads that it does not decode. */
export function useDecoded(value: Json | undefined, text: string): { shown: Json | undefined; note: ReactNode } {
  // Memoized by text: a value that was fetched again is not decoded again.
  const sealed = useMemo(() => sealedIn(value), [text]); // eslint-disable-line react-hooks/exhaustive-deps
  const namespace = useNamespace();
  const list = useQuery({ queryKey: keys.namespaces, queryFn: api.namespaces, enabled: sealed.length > 0, staleTime: 60_000 });
  const endpoint = list.data?.namespaces.find((n) => n.name === namespace)?.codec_endpoint ?? "";
  const [entered, setEntered] = useState("");
  const [attempt, setAttempt] = useState(0);
  const [outcome, setOutcome] = useState<Outcome>();
  useEffect(() => {
    if (!endpoint || sealed.length === 0) return;
    const ends = new AbortController();
    const stored = () => sessionStorage.getItem(tokenName(endpoint)) ?? "";
    const token = entered || stored();
    const retry = () => {
      setEntered("");
      setAttempt((n) => n + 1);
    };
    decodeBy(endpoint, token, sealed, ends.signal).then(
      (values) => {
        if (token && token !== stored()) {
          sessionStorage.setItem(tokenName(endpoint), token);
          window.dispatchEvent(new Event(tokenAccepted));
        }
        setOutcome({ of: sealed, values });
      },
      (err: unknown) => {
        if (ends.signal.aborted) return;
        const message = err instanceof Error ? err.message : String(err);
        if (!(err instanceof Refused)) return setOutcome({ of: sealed, error: message });
        if (stored() && stored() !== token) return retry(); // another value's token was accepted meanwhile
        window.addEventListener(tokenAccepted, retry, { signal: ends.signal });
        setOutcome({ of: sealed, refused: message });
      },
    );
    return () => ends.abort();
  }, [endpoint, entered, attempt, sealed]);
  const done = outcome?.of === sealed ? outcome : undefined;
  const values = done?.values;
  const shown = useMemo(() => {
    if (!values) return value;
    let at = 0;
    return replaceSealed(value, () => values[at++]?.value);
  }, [text, values]); // eslint-disable-line react-hooks/exhaustive-deps
  if (sealed.length === 0) return { shown: value, note: null };
  return { shown, note: <Note sealed={sealed} endpoint={endpoint} loaded={list.isSuccess} outcome={done} onToken={setEntered} /> };
}

interface NoteProps {
  sealed: Sealed[];
  endpoint: string;
  loaded: boolean;
  outcome: Outcome | undefined;
  onToken: (token: string) => void;
}

function Note({ sealed, endpoint, loaded, outcome, onToken }: NoteProps) {
  const [token, setToken] = useState("");
  const key = sealed[0]!.key_id;
  const encoded = key ? `Encrypted with key ${key}.` : `Encoded with codec ${sealed[0]!["sojourn.codec"]}.`;
  const failed = outcome?.values?.find((v) => v.error !== undefined)?.error;
  if (outcome?.values) return failed === undefined ? <p className="mb-1 text-[13px] text-faint">Decoded by the codec endpoint.</p> : <p className="mb-1 text-[13px] text-warn">The codec endpoint cannot decode it: {failed}</p>;
  if (loaded && !endpoint) return <p className="mb-1 text-[13px] text-soft">{encoded} The namespace has no codec endpoint that decodes it.</p>;
  if (outcome?.error !== undefined)
    return <p className="mb-1 text-[13px] text-warn">{encoded} The codec endpoint could not be reached: {outcome.error}. If its URL was changed, reload this page.</p>;
  if (outcome?.refused === undefined) return <p className="mb-1 text-[13px] text-faint">{encoded} Decoding…</p>;
  return (
    <form
      className="mb-1.5 flex flex-wrap items-center gap-2 text-[13px] text-soft"
      onSubmit={(e) => {
        e.preventDefault();
        if (token.trim()) onToken(token.trim());
      }}
    >
      <span>
        {encoded} {outcome.refused}
      </span>
      <input type="password" className="field h-7 w-48 text-[13px]" aria-label="Access token of the codec endpoint" autoComplete="off" spellCheck={false} value={token} onChange={(e) => setToken(e.target.value)} />
      <button type="submit" className="btn h-7 px-2.5 text-[13px]" disabled={!token.trim()}>
        Decode
      </button>
    </form>
  );
}
