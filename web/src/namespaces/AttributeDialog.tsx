import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "../api/client";
import { keys } from "../api/queries";
import { faults } from "../lib/faults";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import { Form } from "../ui/Form";

const types: [type: string, says: string][] = [
  ["keyword", "a string that is compared as a whole"],
  ["text", "a long string"],
  ["int", "an integer"],
  ["double", "a number"],
  ["bool", "true or false"],
  ["datetime", "a date and time"],
  ["keyword_list", "a list of strings; a filter matches if one of them does"],
];

/** Registers a search attribute, so that the app checks its type. */
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
    <Dialog open onClose={onClose} title={`Register search attribute in ${namespace}`} description="From now on, values and filters of another type are rejected. Existing runs keep their values.">
      <Form error={f.rest} at={m.error} pending={m.isPending} onSubmit={() => m.mutate()} onClose={onClose} act="Register">
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Name" mono error={f.at("name")} hint="Letters, digits and _; starts with a letter">
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
