import { ApiError } from "../api/request";

/** Errors of a form by field. */
export interface Faults {
  at: (field: string) => string; // "" if the field has no error
  rest: Error | null; // an error that belongs to no field
}

/** A validation error of the form, in the format of the app. */
export const wrong = (field: string, text: string): ApiError => new ApiError(422, "validation_failed", `${field}: ${text}`, undefined, { [field]: [text] });

/** Fields with JSON, whose errors have a path instead of a line. */
const documents = /(^|\.)(input|memo|search_attributes)$/;

/**
 * Assigns the errors of a response to the fields of a form, which are named by their paths. An error below a field belongs to the field: of the second
 * element of a list as "line 2". An error without a field is assigned by its reason.
 */
export function faults(error: Error | null, fields: readonly string[], byReason: Record<string, string> = {}): Faults {
  const found = new Map<string, string[]>();
  let strays = 0;
  const refusal = error instanceof ApiError ? error : null;
  for (const [path, texts] of Object.entries(refusal?.fields ?? {})) {
    const field = fields.filter((f) => path === f || path.startsWith(`${f}.`)).sort((a, b) => b.length - a.length)[0];
    if (field === undefined) {
      strays++;
      continue;
    }
    const below = path.slice(field.length);
    const line = /^\.(\d+)/.exec(below)?.[1];
    const where = documents.test(field) && below ? `at ${below.slice(1)}: ` : line === undefined ? "" : `line ${Number(line) + 1}: `;
    found.set(field, [...(found.get(field) ?? []), ...texts.map((t) => where + t)]);
  }
  const owner = refusal ? byReason[refusal.reason] : undefined;
  if (refusal && found.size === 0 && owner && fields.includes(owner)) found.set(owner, [refusal.message]);
  return { at: (field) => found.get(field)?.join("; ") ?? "", rest: found.size === 0 || strays > 0 ? error : null };
}

/** The error of a request, if the app rejected the value of this member. */
export const rejected = (error: unknown, member: string): ApiError | undefined =>
  error instanceof ApiError && error.reason === "validation_failed" && error.fields[member] ? error : undefined;
