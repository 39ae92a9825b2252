// Shapes of the API, by the names this page has for them. They are what docs/openapi.json says (npm run types writes
// schema.ts of it, with the schemas named here; in small letters the body of a request, by its operation), so that a member that the app renames is found by the compiler.
// Times are RFC 3339 in UTC with microseconds, or null.

import type { Json } from "../lib/json";
import type { components } from "./schema";

export type { Json };
export type { RunStatus } from "./statuses";
export type { WaitReason } from "./waits";

type Schemas = components["schemas"];

export type Time = string | null;

// Closed lists.
export type WaitKind = Schemas["WaitKind"];
export type SessionStatus = Schemas["SessionStatus"];
export type WorkerStatus = Schemas["WorkerStatus"];
export type EventType = Schemas["EventType"]; // of this release: a history may hold others
export type RunShown = RunView["status"]; // as lists show it: RunStatus is the stored one
export type RunBucket = RunView["status_bucket"];
export type TaskState = PendingTask["state"];
export type SessionChange = SessionEvent["what"];
export type AttemptOutcome = SessionAttempt["outcome"];
export type ScheduleStatus = Schedule["status"];
export type OverlapPolicy = Schedule["overlap_policy"];
export type DrainIntent = BuildCohort["drain_intent"];
export type Method = Schemas["Method"];
export type Role = Schemas["Role"];

export type Wait = Schemas["Wait"];
export type Envelope = NonNullable<Schemas["Payload"]>;

export type RunView = Schemas["RunView"];
export type RunList = Schemas["ListResponse"];
export type RunOfWorkflow = Schemas["RunItem"];
export type RunsOfWorkflow = Schemas["RunsResponse"];
export type RunCounts = Schemas["RunCounts"];
export type FindResponse = Schemas["FindResponse"];
export type Found = Schemas["Found"];
export type Pending = Schemas["Pending"];
export type PendingActivity = Schemas["PendingActivity"];
export type PendingTimer = Schemas["PendingTimer"];
export type PendingWait = Schemas["PendingWait"];
export type PendingChild = Schemas["PendingChild"];
export type PendingTask = Schemas["PendingTask"];
export type StartRequest = Schemas["start"];
export type StartActivity = Schemas["run_activity"];
export type Started = Schemas["StartResponse"];
export type ActivityStarted = Schemas["ActivityResponse"];
/** Payload members named arguments, result, output and value are base64; decoded holds the same members as plain JSON. */
export type HistoryEvent = Omit<Schemas["Event"], "payload"> & { payload: Record<string, Json> | null };
export type Truncated = Schemas["TruncatedValue"]; // a value that a response does not contain whole
export type HistoryPage = Pick<Schemas["HistoryResponse"], "next_page_token"> & { events: HistoryEvent[] };
export type ActivityLogs = Schemas["ActivityLogs"];
export type LogLine = Schemas["LogLine"];
export type Redriven = Schemas["RedriveReceipt"];
export type WasReset = Schemas["ResetReceipt"];
export interface ResetRequest {
  event: number;
  reason: string;
  reapply: boolean;
  request_id: string;
}
export type Updated = Schemas["Updated"];
export type QueryResponse = Schemas["QueryResponse"];

export type SessionView = Schemas["SessionView"];
export type SessionEvent = Schemas["SessionEvent"];
export type SessionAttempt = Schemas["SessionAttempt"];
export type SessionAttempts = Schemas["SessionAttemptPage"];
export type SessionDone = Schemas["SessionOperated"];
export type SessionShown = Schemas["SessionShown"];
export type SessionList = Schemas["SessionPage"];
export type SessionPast = Schemas["SessionTimelinePage"];

export type WorkerView = Schemas["WorkerView"];
export type WorkerList = Schemas["WorkersResponse"];
export type WorkerDrain = Schemas["WorkerDrain"];
export type CodeDifference = Schemas["CodeDifference"];
export type FleetSettings = Schemas["FleetSettingsState"];
export type FleetSettingsRequest = Schemas["set_fleet_settings"];
export type FleetDrain = Schemas["FleetDrainState"];
export type FleetDrains = Schemas["FleetDrains"];
export type FleetRequest = Schemas["drain_fleet"];
export type FleetVerb = "drain" | "resume" | "evict"; // the ends of its three routes

export type QueueState = Schemas["QueueState"];
export type QueueList = Schemas["QueuePage"];
export type QueueCount = Schemas["QueueView"];
export type TaskTally = Schemas["TaskTally"];
export type TaskAdmission = Schemas["TaskAdmission"];
export type TaskWhy = Schemas["TaskWhy"];
export type Budget = Schemas["Budget"];
export type Limits = Schemas["set_task_queue_limits"];
export type BuildCohort = Schemas["BuildCohort"];

export type Schedule = Schemas["ScheduleView"];
export type ScheduleSpec = Schemas["ScheduleSpec"];
export type ScheduleAction = Schemas["ScheduleAction"];
export type ScheduleRequest = Schemas["create_schedule"];
export type ScheduleList = Schemas["SchedulesResponse"];
export type ScheduleEvent = Schemas["ScheduleEvent"];
export type ScheduleHistory = Omit<Schemas["ScheduleHistoryResponse"], "namespace" | "schedule_id">;
export type ScheduleTimes = Schemas["ScheduleTimesResponse"];
export type ScheduleReceipt = Schemas["ScheduleReceipt"];

export type ClockJump = Schemas["ClockJump"];
export type Overview = Schemas["Overview"];
export type Me = Schemas["Identity"];
export type NamespaceRequest = Schemas["create_namespace"];
export type NamespaceView = Schemas["NamespaceView"];
export type NamespaceList = Schemas["NamespacesResponse"];
export type SearchAttributes = Schemas["SearchAttributes"];

// What goes over the socket, which the description of the HTTP API does not have.

/** A subscription topic: one entity by its ID, or all of a kind in the namespace. */
export interface Topic {
  kind: "run" | "session" | "worker";
  id?: string;
  namespace: string;
}

export interface Hint {
  kind: "run" | "session" | "worker";
  id?: string; // absent: so many of this kind changed that they are not named
  namespace?: string;
  workflow_id?: string;
  last_seq?: number;
}
