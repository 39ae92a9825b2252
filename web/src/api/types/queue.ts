import type { Time } from "./common";
import type { Wait } from "./wait";

export interface TaskTally {
  ready_count: number;
  leased_count: number;
  expired_lease_count: number;
  delayed_count: number;
  oldest_ready_at: Time;
}

/** How the budgets of one kind of task stand; what has no bound is null. */
export interface TaskAdmission {
  status: string;
  wait?: Wait;
  server_active_lease_count: number;
  server_max_active_leases_per_queue: number | null;
  server_namespace_active_lease_count: number;
  server_max_active_leases_per_namespace: number | null;
  server_dispatch_count_this_minute: number;
  server_max_dispatches_per_minute: number | null;
  server_namespace_dispatch_count_this_minute: number;
  server_max_dispatches_per_minute_per_namespace: number | null;
}

export interface Budget {
  max_active_leases: number | null;
  max_dispatches_per_minute: number | null;
}

export interface Limits {
  workflow_tasks: Budget;
  activity_tasks: Budget;
}

export interface BuildCohort {
  build_id: string | null;
  rollout_status: string;
  active_worker_count: number;
  draining_worker_count: number;
  stale_worker_count: number;
  total_worker_count: number;
  runtimes: string[] | null;
  sdk_versions: string[] | null;
  last_heartbeat_at: Time;
  first_seen_at: Time;
  drain_intent: "active" | "draining";
  drained_at: Time;
  promoted_at: Time;
  new_start_selected: boolean;
}

export interface QueueState {
  name: string;
  namespace: string;
  stats: {
    approximate_backlog_count: number;
    workflow_tasks: TaskTally;
    activity_tasks: TaskTally;
    pollers: { active_count: number; stale_count: number; waiting_count: number };
  };
  admission: { workflow_tasks: TaskAdmission; activity_tasks: TaskAdmission };
  promoted_build_id: string | null;
  group?: string; // whose workers alone get its tasks
  group_of_namespace?: boolean;
  // Of one queue alone:
  waiting?: TaskWhy[] | null;
  limits?: Partial<Limits>;
  build_ids?: BuildCohort[] | null;
  pollers?: { worker_id: string; runtime: string; build_id: string | null; status: string; last_heartbeat_at: Time }[] | null;
  current_leases?: { task_id: string; task_type: string; workflow_id: string; run_id: string; lease_owner: string; lease_expires_at: Time }[] | null;
}

/** An open task, and why it is where it is. */
export interface TaskWhy {
  task_id: string;
  kind: "workflow" | "activity";
  state: string;
  workflow_id: string;
  run_id: string;
  type: string;
  session_id?: string;
  wait: Wait;
}

export interface QueueList {
  task_queues: QueueState[] | null;
  next_page_token?: string | null;
}
