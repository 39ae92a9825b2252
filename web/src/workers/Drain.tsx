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

/** What an operator may do to a worker: give it nothing more, have it leave, or give it work again. */
export function Drain({ worker: w }: { worker: WorkerView }) {
  const [verb, setVerb] = useState<FleetVerb | null>(null);
  const others = w.drain && !w.drain.worker_id ? `It is drained as one of ${drainedAs(w.drain)}, above: that is resumed for all of them.` : "";
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
    text: "It is given nothing more, and ends what it has. Each of its sessions is released when nothing runs in it; what is in memory is built anew elsewhere. It stays, and can be resumed.",
    act: "Drain the worker",
  },
  resume: { title: "Resume this worker?", text: "It is given work again. Sessions that it released stay released.", act: "Resume the worker" },
  evict: {
    title: "Evict this worker?",
    text: "It is given nothing more and told to leave: what it cannot end in its own drain timeout it hands back, and its process ends. One that is started again under this id gets nothing until it is resumed.",
    act: "Evict the worker",
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
