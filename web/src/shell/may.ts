import { useQuery } from "@tanstack/react-query";
import { meQuery } from "../api/queries";

/** The roles of which each may do what those before it may. */
const ladder = ["viewer", "writer", "operator", "admin"] as const;

export type Role = (typeof ladder)[number];

/** Why somebody with these roles may not do what a role may, or "". */
export function refusal(roles: readonly string[] | null | undefined, needs: Role): string {
  const allowed = ladder.slice(ladder.indexOf(needs));
  if (!roles || roles.some((r) => (allowed as readonly string[]).includes(r))) return "";
  return `The role ${roles[0] ?? "none"} may not do this; ${needs === "admin" ? "an admin" : `${needs === "operator" ? "an" : "a"} ${needs}`} may.`;
}

/** Why whoever is signed in may not do what a role may, or "". The app decides; this only says so beforehand. */
export function useRefusal(needs: Role): string {
  return refusal(useQuery(meQuery).data?.roles, needs);
}
