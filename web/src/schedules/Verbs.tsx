import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { Schedule } from "../api/types";
import { words } from "../lib/status";
import { Act } from "../ui/Act";
import { Dialog } from "../ui/Dialog";
import { Form } from "../ui/Form";
import BackfillDialog from "./BackfillDialog";
import ScheduleDialog from "./ScheduleDialog";

type Verb = "pause" | "resume" | "trigger" | "delete";

const asks: Record<Verb, { name: string; title: string; says: string; act: string }> = {
  pause: { name: "Pause", title: "Pause this schedule?", says: "No runs are started until the schedule is resumed. Open runs continue.", act: "Pause schedule" },
  resume: { name: "Resume", title: "Resume this schedule?", says: "Runs are started again at the scheduled times. Missed times are not backfilled.", act: "Resume schedule" },
  trigger: { name: "Trigger", title: "Trigger this schedule now?", says: "Starts a run immediately, subject to the overlap policy.", act: "Trigger run" },
  delete: {
    name: "Delete", title: "Delete this schedule?", act: "Delete schedule",
    says: "Deletes the schedule and its history. Open runs continue. This cannot be undone.",
  },
};

/** The result of an action. */
interface Turned {
  outcome: string;
  reason?: string;
  workflow_id?: string;
}

/** Actions on a schedule. The outcome of a trigger is shown, because the overlap policy may skip or buffer the run. */
export function Verbs({ schedule: s }: { schedule: Schedule }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  const [form, setForm] = useState<"change" | "backfill" | null>(null);
  const [note, setNote] = useState("");
  const navigate = useNavigate();
  const [came, setCame] = useState("");
  const client = useQueryClient();
  const m = useMutation({
    mutationFn: async (v: Verb): Promise<Turned> => (v === "delete" ? (await api.deleteSchedule(s), { outcome: "deleted" }) : api.turnSchedule(s, v, note.trim())),
    onSuccess: async (answer, v) => {
      setVerb(null);
      setNote("");
      if (v === "delete") await navigate({ to: "/schedules" });
      setCame(v === "trigger" ? `${words(answer.outcome)}${answer.workflow_id ? `: ${answer.workflow_id}` : answer.reason ? `: ${words(answer.reason)}` : ""}` : "");
      await client.invalidateQueries({ queryKey: keys.schedules(s.namespace) });
    },
  });
  const ask = (v: Verb) => {
    m.reset();
    setVerb(v);
  };
  // The form sends the whole schedule, so it needs the values that the page has not loaded.
  const whole = useQuery({
    queryKey: ["schedule-whole", s.namespace, s.schedule_id, s.updated_at],
    queryFn: () => api.schedule(s, true),
    enabled: form === "change" && s.truncated !== undefined,
    staleTime: Infinity,
    gcTime: 0,
  });
  const edited = s.truncated ? whole.data : s;
  if (s.status === "deleted") return null;
  const turn: Verb = s.paused ? "resume" : "pause";
  return (
    <div className="flex flex-wrap items-center gap-2">
      {came && (
        <span role="status" className="text-soft" data-came>
          {came}
        </span>
      )}
      <Act needs="operator" onClick={() => ask("trigger")}>
        Trigger
      </Act>
      <Act needs="operator" onClick={() => ask(turn)}>
        {asks[turn].name}
      </Act>
      <Act needs="operator" onClick={() => setForm("backfill")}>
        Backfill
      </Act>
      <Act needs="operator" onClick={() => setForm("change")}>
        Edit
      </Act>
      <Act needs="operator" danger onClick={() => ask("delete")}>
        Delete
      </Act>
      {form === "change" && edited && <ScheduleDialog namespace={s.namespace} of={edited} onClose={() => setForm(null)} />}
      {form === "change" && whole.isError && (
        <span role="alert" className="text-bad">
          {whole.error.message}
        </span>
      )}
      {form === "backfill" && <BackfillDialog schedule={s} onClose={() => setForm(null)} />}
      {verb && (
        <Dialog open onClose={() => setVerb(null)} title={asks[verb].title} description={asks[verb].says}>
          <Form error={m.error} pending={m.isPending} onSubmit={() => m.mutate(verb)} onClose={() => setVerb(null)} act={asks[verb].act} danger={verb === "delete"}>
            {(verb === "pause" || verb === "resume") && (
              <label className="block">
                <span className="label">Note (shown with the schedule)</span>
                <input className="field mt-1" maxLength={1000} value={note} onChange={(e) => setNote(e.target.value)} />
              </label>
            )}
          </Form>
        </Dialog>
      )}
    </div>
  );
}
