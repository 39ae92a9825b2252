import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import type { NamespaceView } from "../api/types";
import { faults } from "../lib/faults";
import { readWhole } from "../lib/input";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import { Form } from "../ui/Form";

/** Creates or edits a namespace. */
export default function NamespaceDialog({ of, onClose }: { of?: NamespaceView; onClose: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [description, setDescription] = useState(of?.description ?? "");
  const [endpoint, setEndpoint] = useState(of?.codec_endpoint ?? "");
  const [days, setDays] = useState(of ? String(of.retention_days) : "30");
  const m = useMutation({
    mutationFn: async () => {
      const retention = readWhole(days, "retention_days", 1, 365);
      const what = { description: description.trim(), ...(retention !== undefined && { retention_days: retention }), codec_endpoint: endpoint.trim() };
      return of ? api.updateNamespace(of.name, what) : api.createNamespace({ name: name.trim(), ...what });
    },
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.namespaces });
    },
  });
  const f = faults(m.error, ["name", "description", "retention_days", "codec_endpoint"], { namespace_already_exists: "name" });
  return (
    <Dialog
      open
      onClose={onClose}
      title={of ? `Edit ${of.name}` : "New namespace"}
      description={of ? "The name cannot be changed." : "A separate set of workflow IDs, queues, sessions and tokens. The name cannot be changed later."}
    >
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act={of ? "Save" : "Create namespace"}>
        <div className="grid gap-3">
          {!of && (
            <Field label="Name" mono error={f.at("name")} hint="Lower-case letters, digits and . _ -">
              {(c) => <input {...c} spellCheck={false} autoComplete="off" autoCapitalize="none" value={name} onChange={(e) => setName(e.target.value)} />}
            </Field>
          )}
          <Field label="Description" error={f.at("description")}>
            {(c) => <input {...c} maxLength={1000} value={description} onChange={(e) => setDescription(e.target.value)} />}
          </Field>
          <Field label="Retention of closed runs (days)" error={f.at("retention_days")} hint="1 to 365. A lower value deletes older closed runs.">
            {(c) => <input {...c} inputMode="numeric" value={days} onChange={(e) => setDays(e.target.value)} />}
          </Field>
          <Field label="Codec endpoint" mono error={f.at("codec_endpoint")} hint="URL of your service that decodes encrypted values for viewers. Reload the page after a change.">
            {(c) => <input {...c} spellCheck={false} autoComplete="off" placeholder="https://codec.example.com/decode" value={endpoint} onChange={(e) => setEndpoint(e.target.value)} />}
          </Field>
        </div>
      </Form>
    </Dialog>
  );
}
