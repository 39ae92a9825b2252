// Shapes of the API, as far as the dashboard reads them. Times are RFC 3339 in UTC with microseconds, or null.

export type * from "./types/common";
export type * from "./types/wait";
export type { WaitReason } from "./types/waits";
export type * from "./types/run";
export type * from "./types/session";
export type * from "./types/worker";
export type * from "./types/queue";
export type * from "./types/schedule";
