// Shapes of the API, as far as the dashboard reads them. Times are RFC 3339 in UTC with microseconds, or null.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Time = string | null;

export interface RunView {
  workflow_id: string;
  run_id: string;
  namespace: string;
  workflow_type: string;
  business_key: string | null;
  status: string;
  status_bucket: string;
  is_terminal: boolean;
  closed_reason: string | null;
  task_queue: string;
  run_number: number;
  run_count: number;
  is_current_run: boolean;
  input?: Json;
  output?: Json;
  started_at: Time;
  closed_at: Time;
  last_progress_at: Time;
  run_deadline_at?: Time;
  execution_deadline_at?: Time;
  wait_kind: string | null;
  wait_reason: string | null;
  memo?: Json;
  search_attributes?: Json;
  history_length: number;
  failure?: Json;
  error?: string | null;
  blocked_reason?: string | null;
  actions?: Record<"can_signal" | "can_query" | "can_update" | "can_cancel" | "can_terminate" | "can_repair", boolean>;
  input_envelope?: Envelope | null;
  output_envelope?: Envelope | null;
  parent_workflow_id?: string | null;
  parent_run_id?: string | null;
  pending?: Pending | null;
}

/** A value as it is stored: base64 in a codec. */
export type Envelope = { codec: string; blob: string };

export interface Pending {
  updates?: { update_id: string; update_name: string }[] | null;
  children?: PendingChild[] | null;
  activities: PendingActivity[] | null;
  timers: PendingTimer[] | null;
  waits: PendingWait[] | null;
  sessions: string[] | null;
  workflow_task: PendingTask | null;
}

export interface PendingActivity {
  sequence: number;
  activity_execution_id: string;
  activity_type: string;
  task_queue: string;
  state: "ready" | "delayed" | "leased";
  attempt_number: number;
  worker_id?: string;
  session_id?: string;
  session_epoch?: number;
  scheduled_at: Time;
  started_at: Time;
  next_attempt_at: Time;
  lease_expires_at: Time;
  last_heartbeat_at: Time;
  progress?: Json;
  last_failure?: string;
  why?: string;
}

export interface PendingTimer {
  sequence: number;
  timer_id: string;
  fire_at: Time;
}

export interface PendingWait {
  sequence: number;
  kind?: "signal" | "condition";
  signal_name: string;
  condition_key?: string;
}

export interface PendingChild {
  sequence: number;
  workflow_id: string;
  run_id: string;
  workflow_type: string;
  parent_close_policy: string;
  attempt_number: number;
}

export interface PendingTask {
  task_id: string;
  state: "ready" | "leased" | "quarantined";
  workflow_task_attempt: number;
  worker_id?: string;
  lease_expires_at: Time;
  why?: string;
}

export interface RunList {
  workflows: RunView[] | null;
  workflow_count: number;
  next_page_token: string | null;
}

/** One run of a workflow id, as the list of its runs shows it. */
export interface RunOfWorkflow {
  run_id: string;
  run_number: number;
  workflow_type: string;
  status: string;
  closed_reason?: string | null;
  started_at: Time;
  closed_at: Time;
}

/** Payload members named arguments, result, output and value are base64; decoded holds the same members as plain JSON. */
export interface HistoryEvent {
  sequence: number;
  event_type: string;
  recorded_at?: Time;
  timestamp?: Time;
  workflow_task_id?: string;
  payload: Record<string, Json> | null;
  decoded?: Record<string, Json>;
}

export interface HistoryPage {
  events: HistoryEvent[] | null;
  next_page_token: string | null;
}

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
  held_sessions: number;
}

export interface SessionView {
  session_id: string;
  namespace: string;
  door: string;
  scope: string;
  workflow_id?: string;
  queue: string;
  requirements: string[] | null;
  status: string;
  epoch: number;
  lease_owner: string | null;
  holder: { worker_id: string; task_queue: string; status: string; last_heartbeat_at: Time; is_stale: boolean } | null;
  lease_expires_at: Time;
  ttl_expires_at: Time;
  idle_seconds?: number;
  closed_at: Time;
  failure_reason: string | null;
  ended_reason?: string;
  lease_seconds: number;
  ttl_seconds?: number; // 0: none
  allow_reacquire_after_failure?: boolean;
  moving?: string; // the operator who asked its holder to give it up
  kept_for?: string; // the worker it waits for, for a short time
  claims?: number;
  release_policy?: string;
  max_concurrent_activities: number;
  active_activity_count: number;
  ready_activity_count: number;
  release?: string;
  last_activity_at: Time;
  last_heartbeat_at: Time;
  created_at: Time;
  updated_at: Time;
  waiting?: string;
  timeline?: SessionEvent[] | null;
}

export interface SessionEvent {
  at: Time;
  what: string;
  worker_id?: string;
  epoch?: number;
  by?: string; // absent: the app, because the time had come
  why?: string;
  task_id?: string;
  // Of the holding that ends.
  ran?: number;
  renewals?: number;
  first_renewal?: Time;
  last_renewal?: Time;
  idle_seconds?: number;
  release?: string;
}

/** One delivery of an activity in a session. */
export interface SessionAttempt {
  workflow_id: string;
  run_id: string;
  task_id: string;
  activity_attempt_id: string;
  activity_type: string;
  attempt_number?: number;
  worker_id: string;
  epoch: number;
  outcome: string; // running, completed, failed, cancelled, expired, returned
  why?: string;
  started_at?: Time;
  ended_at?: Time;
}

export interface SessionAttempts {
  attempts: SessionAttempt[] | null;
  next_page_token: string | null;
}

/** The answer to an operator's verb. */
export interface SessionDone {
  outcome: "closed" | "migrated" | "draining";
  session: SessionView;
}

export interface SessionList {
  sessions: SessionView[] | null;
  metrics?: Record<string, number>;
  next_page_token?: string | null;
}

export interface Overview {
  release: string;
  release_unreadable?: boolean;
  app_id: string;
  store: string;
  uptime_seconds: number;
  counts: {
    runs: Record<string, number>;
    sessions: Record<string, number>;
    workers: Record<string, number>;
  };
  queues: QueueCount[] | null;
}

export interface QueueCount {
  namespace: string;
  queue: string;
  kind: string;
  ready: number;
  leased: number;
  delayed: number;
  oldest_ready: Time;
}

export interface Me {
  identity: string;
  roles: string[] | null;
  method?: string; // token, cookie, none
}

export interface Hint {
  kind: "run" | "session" | "worker";
  id?: string; // absent: so many of this kind changed that they are not named
  namespace?: string;
  workflow_id?: string;
  last_seq?: number;
}

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
  wait_reason?: string;
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
  why: string;
}

export interface QueueList {
  task_queues: QueueState[] | null;
  next_page_token?: string | null;
}

export interface Schedule {
  schedule_id: string;
  namespace: string;
  workflow_type: string;
  status: string;
  paused: boolean;
  spec: { cron_expressions?: string[]; intervals?: { every: string; offset?: string }[]; timezone?: string };
  action: { workflow_type: string; task_queue?: string; input?: Json; workflow_id?: string };
  overlap_policy: string;
  jitter_seconds: number;
  remaining_actions: number | null;
  note: string | null;
  memo: Json;
  search_attributes: Json;
  fires_count: number;
  failures_count: number;
  next_fire: Time;
  last_fire: Time;
  latest_workflow_instance_id: string | null;
  created_at: Time;
  info: { buffered_actions: number; skipped_trigger_count: number; last_skip_reason: string | null };
}

export interface ScheduleList {
  schedules: Schedule[] | null;
  next_page_token: string | null;
}

/** What a schedule did: what a command or a firing came to. */
export interface ScheduleEvent {
  sequence: number;
  event_type: string;
  recorded_at: Time;
  workflow_instance_id: string | null;
  workflow_run_id: string | null;
  payload: Record<string, Json> | null;
}

export interface NamespaceView {
  name: string;
  description: string;
  retention_days: number;
  status: string;
  created_at: Time;
}

/** What runs can be filtered by: types by name. */
export interface SearchAttributes {
  system_attributes: Record<string, string>;
  custom_attributes: Record<string, string>;
}
