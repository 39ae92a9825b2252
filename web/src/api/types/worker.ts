import type { Json, Time } from "./common";

export interface WorkerView {
  worker_id: string;
  namespace: string;
  task_queue: string;
  task_queues: string[] | null;
  runtime: string;
  sdk_version?: string;
  build_id: string | null;
  release?: string;
  incarnation?: string;
  status: string;
  gate?: string;
  capabilities: string[] | null;
  supported_workflow_types: string[] | null;
  supported_activity_types: string[] | null;
  max_concurrent_workflow_tasks: number;
  max_concurrent_activity_tasks: number;
  max_concurrent_worker_sessions: number;
  session_settings?: { lease_ms: number; buffer_ms: number; idle_ms: number } | null;
  last_heartbeat_at: Time;
  registered_at: Time;
  machine?: Record<string, Json> | null;
  isolation?: Record<string, Json> | null;
  task_slots?: Record<string, Json> | null;
  active_leases: number;
  active_workflow_tasks?: number; // of these
  active_activity_tasks?: number;
  held_sessions: number;
  group?: string;
  drain?: WorkerDrain;
  settings_revision?: number; // of the fleet's settings, that it runs with; absent: it takes none
  activity_versions?: Record<string, string>; // what the code of its activity types is
  code_differs?: CodeDifference[]; // activity types of which a worker of the same release has other code
}

export interface CodeDifference {
  activity_type: string;
  worker_id: string; // the other
  version: string;
}

/** What an operator set for all workers of a namespace, and how many run with it. What is absent is each worker's own. */
export interface FleetSettings {
  revision: number; // 0: nothing was ever set
  log_level?: string;
  worker_concurrency?: number;
  isolation_min_level?: string;
  worker_count: number;
  applied_worker_count: number;
  pending: string[];
}

export type FleetVerb = "drain" | "resume" | "evict";

/** Why a worker is given nothing, at an operator's word: by its own id, or as one of a group, a build or a release. */
export interface WorkerDrain {
  worker_id?: string;
  group?: string;
  build_id?: string;
  release?: string;
  since: Time;
  deadline_at: Time;
  evict: boolean;
  by?: string;
  reason?: string;
}
