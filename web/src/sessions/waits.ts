import type { SessionView } from "../api/types";
import { isHeld, isOver } from "./verbs";

/** Why what is queued in a session waits, in a line of a list, or "". The page of a session asks the app, which knows more. */
export function waits(s: SessionView): string {
  if (isOver(s)) return "";
  if (s.waiting) return s.waiting;
  const n = s.ready_activity_count;
  if (s.moving) return `${s.moving} moves it: what runs in it ends first`;
  if (s.kept_for) return `kept for ${s.kept_for} for a short time`;
  if (n === 0) return "";
  const what = `${n} ${n === 1 ? "activity waits" : "activities wait"}`;
  if (!isHeld(s)) {
    const needs = s.requirements?.length ? ` that has ${s.requirements.join(", ")}` : "";
    return `${what} for a worker${needs} to claim it`;
  }
  const owner = s.lease_owner ?? "its holder";
  if (s.holder?.is_stale || s.holder?.status === "stale") return `${what}: ${owner} holds it and is not heard of; another may claim it when the lease ends`;
  if (s.holder?.status === "mismatched") return `${what}: ${owner} holds it, and its release is not the app's`;
  if (s.holder?.status === "draining") return `${what}: ${owner} holds it and drains`;
  if (s.max_concurrent_activities > 0 && s.active_activity_count >= s.max_concurrent_activities) return `${what}: ${s.active_activity_count} run in it, its most`;
  return `${what} for ${owner}, which holds it`;
}
