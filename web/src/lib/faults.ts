import { ApiError } from "../api/request";

/** What is wrong with what was typed, put where it was typed. */
export interface Faults {
  at: (field: string) => string; // "" when nothing is wrong there
  rest: Error | null; // what belongs to no field
}

/** A refusal by the form itself, as the app would word it. */
export const wrong = (field: string, text: string): ApiError => new ApiError(422, "validation_failed", `${field}: ${text}`, undefined, { [field]: [text] });

/** Fields where JSON is typed: what is wrong in one has a place in the document, not a line. */
const documents = /(^|\.)(input|memo|search_attributes)$/;

/**
 * Places a refusal among the fields of a form, which are named by their paths. What is wrong with a part of a field goes to that field: the second of
 * a list as "line 2". A refusal that names no field may belong to one by its reason.
 */
export function faults(error: Error | null, fields: readonly string[], byReason: Record<string, string> = {}): Faults {
  const found = new Map<string, string[]>();
  let strays = 0;
  const told = error instanceof ApiError ? error : null;
  for (const [path, texts] of Object.entries(told?.fields ?? {})) {
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
  const owner = told ? byReason[told.reason] : undefined;
  if (told && found.size === 0 && owner && fields.includes(owner)) found.set(owner, [told.message]);
  return { at: (field) => found.get(field)?.join("; ") ?? "", rest: found.size === 0 || strays > 0 ? error : null };
}

/** The error of a request, if the app rejected the value of this member. */
export const rejected = (error: unknown, member: string): ApiError | undefined =>
  error instanceof ApiError && error.reason === "validation_failed" && error.fields[member] ? error : undefined;
