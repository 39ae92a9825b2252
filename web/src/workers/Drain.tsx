import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { FleetVerb, WorkerView } from "../api/types";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import { Reason } from "./Reason";
import { drainedAs } from "./why";

/** Actions on a worker: drain, evict, resume. */
export function Drain({ worker: w }: { worker: WorkerView }) {
  const [verb, setVerb] = useState<FleetVerb | null>(null);
  const others = w.drain && !w.drain.worker_id ? `Drained with ${drainedAs(w.drain)}; resume that drain at the top of the page.` : "";
  return (
    <div className="flex flex-wrap gap-2">
      {w.drain ? (
        <Act needs="operator" why={others} onClick={() => setVerb("resume")}>
          Resume
        </Act>
      ) : (
        <Act needs="operator" onClick={() => setVerb("drain")}>
          Drain
        </Act>
      )}
      {!w.drain?.evict && (
        <Act needs="operator" danger onClick={() => setVerb("evict")}>
          Evict
        </Act>
      )}
      {verb && <VerbDialog worker={w} verb={verb} onClose={() => setVerb(null)} />}
    </div>
  );
}

const words = {
  drain: {
    title: "Drain this worker?",
    text: "The worker gets no new tasks; running tasks finish. Its sessions are released when they are idle, and other workers rebuild their state. The process keeps running and can be resumed.",
    act: "Drain worker",
  },
  resume: { title: "Resume this worker?", text: "The worker gets tasks again. Released sessions stay released.", act: "Resume worker" },
  evict: {
    title: "Evict this worker?",
    text: "The worker gets no new tasks and its process exits. Tasks that do not finish within its drain timeout return to the queue. A process with this worker ID gets no tasks until it is resumed.",
    act: "Evict worker",
  },
};

function VerbDialog({ worker: w, verb, onClose }: { worker: WorkerView; verb: FleetVerb; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const client = useQueryClient();
  const m = useMutation({
    mutationFn: () => api.operateFleet(w.namespace, verb, { worker_id: w.worker_id, ...(reason.trim() && { reason: reason.trim() }) }),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.workers });
    },
  });
  const say = words[verb];
  return (
    <Dialog open onClose={onClose} title={say.title} description={say.text}>
      <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={say.act} danger={verb === "evict"}>
        {verb !== "resume" && <Reason value={reason} onChange={setReason} />}
      </Form>
    </Dialog>
  );
}
