import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys, workersQuery } from "../api/queries";
import type { SessionDone, SessionView } from "../api/types";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { isHeld, isOver, targets } from "./verbs";

/** Actions on a session that has not ended; each opens a confirmation. */
export function Actions({ session }: { session: SessionView }) {
  const [which, setWhich] = useState<"migrate" | "close" | null>(null);
  if (isOver(session)) return null;
  const leave = () => setWhich(null);
  return (
    <div className="flex gap-2">
      <Act needs="operator" onClick={() => setWhich("migrate")}>
        Migrate
      </Act>
      <Act needs="operator" danger onClick={() => setWhich("close")}>
        Close
      </Act>
      {which === "migrate" && <MigrateDialog session={session} onClose={leave} />}
      {which === "close" && <CloseDialog session={session} onClose={leave} />}
    </div>
  );
}

function useVerb(session: SessionView, verb: () => Promise<SessionDone>, onClose: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: verb,
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.session(session) });
      await client.invalidateQueries({ queryKey: keys.sessions });
    },
  });
}

interface Props {
  session: SessionView;
  onClose: () => void;
}

function Reason({ value, set }: { value: string; set: (to: string) => void }) {
  return (
    <label className="mt-3 block">
      <span className="label">Reason (recorded in the ownership history and the audit log)</span>
      <input className="field mt-1" maxLength={1000} value={value} onChange={(e) => set(e.target.value)} />
    </label>
  );
}

function CloseDialog({ session: s, onClose }: Props) {
  const [reason, setReason] = useState("");
  const m = useVerb(s, () => api.closeSession(s, reason.trim()), onClose);
  const fails = s.ready_activity_count > 0 ? `${s.ready_activity_count} waiting ${s.ready_activity_count === 1 ? "activity fails" : "activities fail"} with session_closed. ` : "";
  const ends = s.active_activity_count > 0 ? "Running activities can finish; no new ones start. " : "";
  return (
    <Dialog open onClose={onClose} title="Close this session?" description={`${fails}${ends}The session ID cannot be used again. This cannot be undone.`}>
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Close session" danger>
        <Reason value={reason} set={setReason} />
      </Form>
    </Dialog>
  );
}

function MigrateDialog({ session: s, onClose }: Props) {
  const [worker, setWorker] = useState("");
  const [force, setForce] = useState(false);
  const [reason, setReason] = useState("");
  const workers = useQuery(workersQuery(s.namespace));
  const found = targets(s, workers.data?.workers ?? []);
  const m = useVerb(s, () => api.migrateSession(s, { worker, force, reason: reason.trim() }), onClose);
  const held = isHeld(s);
  const what = held
    ? `${s.lease_owner} releases the session${s.active_activity_count > 0 ? " when its running activities have finished" : ""}, and another worker acquires it with a new epoch. In-memory state is lost and has to be rebuilt.`
    : "The session has no owner. It is reserved for the chosen worker for a short time.";
  return (
    <Dialog open onClose={onClose} title="Migrate this session?" description={what}>
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Migrate" danger={force}>
        <label className="block">
          <span className="label">Target worker</span>
          <select className="field mt-1" value={worker} onChange={(e) => setWorker(e.target.value)}>
            <option value="">Worker with the most free session slots</option>
            {found.map((t) => (
              <option key={t.id} value={t.id}>
                {t.id} ({t.held} of {t.most} sessions)
              </option>
            ))}
          </select>
        </label>
        {workers.isSuccess && found.length === 0 && <p className="mt-1 text-xs text-warn">No other live worker can own this session.</p>}
        {workers.isError && <p className="mt-1 text-xs text-bad">Could not load the workers: {workers.error.message}</p>}
        {held && (
          <label className="mt-3 flex items-start gap-2.5">
            <input type="checkbox" className="mt-1 size-4 shrink-0 accent-(--bad)" checked={force} onChange={(e) => setForce(e.target.checked)} />
            <span>
              Force: do not wait for running activities
              <span className="block text-xs text-faint">A running activity loses its session, and its result may be rejected.</span>
            </span>
          </label>
        )}
        <Reason value={reason} set={setReason} />
      </Form>
    </Dialog>
  );
}
