import { useQuery } from "@tanstack/react-query";
import { meQuery } from "../api/queries";

/** The roles in ascending order: each includes the permissions of the ones before it. */
const ladder = ["viewer", "writer", "operator", "admin"] as const;

export type Role = (typeof ladder)[number];

/** The message if none of the given roles includes the needed one, otherwise "". */
export function refusal(roles: readonly string[] | null | undefined, needs: Role): string {
  const allowed = ladder.slice(ladder.indexOf(needs));
  if (!roles || roles.some((r) => (allowed as readonly string[]).includes(r))) return "";
  return `Requires the role ${needs}; you have ${roles.join(", ") || "no role"}.`;
}

/** The message if the signed-in user lacks the needed role, otherwise "". The app makes the actual check. */
export function useRefusal(needs: Role): string {
  return refusal(useQuery(meQuery).data?.roles, needs);
}
