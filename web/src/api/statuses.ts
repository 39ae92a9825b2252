// Written by go generate from shared/protocol/status.go. Do not edit.

/** How runs stand, in the order in which people are offered it. */
export const runStatuses = ["running", "completed", "failed", "timed_out", "cancelled", "terminated", "continued"] as const;

export type RunStatus = (typeof runStatuses)[number];
