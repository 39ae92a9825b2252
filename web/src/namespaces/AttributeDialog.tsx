import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import { faults } from "../lib/faults";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import { Form } from "../ui/Form";

const types: [type: string, says: string][] = [
  ["keyword", "a text that is compared as a whole"],
  ["text", "a longer text"],
  ["int", "whole numbers"],
  ["double", "numbers"],
  ["bool", "true or false"],
  ["datetime", "times"],
  ["keyword_list", "several texts, of which one is enough"],
];

/** Registers a search attribute: from then on its type is checked. */
export default function AttributeDialog({ namespace, onClose }: { namespace: string; onClose: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [type, setType] = useState("keyword");
  const m = useMutation({
    mutationFn: () => api.createAttribute(namespace, { name: name.trim(), type }),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.namespaces });
    },
  });
  const taken = { attribute_already_exists: "name", name_reserved: "name" };
  const f = faults(m.error, ["name", "type"], taken);
  return (
    <Dialog open onClose={onClose} title={`Register a search attribute in ${namespace}`} description="Values and filters of another type are refused from then on. Runs keep the values they have.">
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Register it">
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Name" mono error={f.at("name")} hint="Letters, digits and _, a letter first">
            {(c) => <input {...c} spellCheck={false} autoComplete="off" autoCapitalize="none" value={name} onChange={(e) => setName(e.target.value)} />}
          </Field>
          <Field label="Type" error={f.at("type")} hint={types.find(([t]) => t === type)?.[1]}>
            {(c) => (
              <select {...c} value={type} onChange={(e) => setType(e.target.value)}>
                {types.map(([t]) => (
                  <option key={t}>{t}</option>
                ))}
              </select>
            )}
          </Field>
        </div>
      </Form>
    </Dialog>
  );
}
