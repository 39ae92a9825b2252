import type { Envelope, Json, Time } from "./common";
import type { Wait } from "./wait";

export interface RunView {
  workflow_id: string;
  run_id: string;
  namespace: string;
  workflow_type: string;
  kind: "workflow" | "activity"; // an activity by itself has its name as workflow_type
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
  wait?: Wait | null;
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
  wait?: Wait | null;
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
  former_run_id?: string; // an earlier run of the workflow id started it
  attached?: number[]; // commands of this run that wait for it
}

export interface PendingTask {
  task_id: string;
  state: "ready" | "delayed" | "leased" | "quarantined";
  workflow_task_attempt: number;
  worker_id?: string;
  lease_expires_at: Time;
  stack_trace?: string; // where its code failed last
  wait?: Wait | null;
}

/** A start; an id is made when none is given. */
export interface StartRequest {
  workflow_type: string;
  workflow_id?: string;
  task_queue?: string;
  business_key?: string;
  input?: Json;
  memo?: Json;
  search_attributes?: Json;
  priority?: number;
  start_delay_seconds?: number;
}

/** An activity to run by itself. */
export interface StartActivity extends Omit<StartRequest, "workflow_type" | "start_delay_seconds"> {
  activity_type: string;
  session_id?: string;
  affinity?: string;
  retry_policy?: { max_attempts?: number; backoff_seconds?: number[] };
  start_to_close_timeout?: number;
  schedule_to_start_timeout?: number;
  schedule_to_close_timeout?: number;
  heartbeat_timeout?: number;
}

export interface RunList {
  workflows: RunView[] | null;
  workflow_count: number;
  next_page_token: string | null;
  /** What of the filter is likely not what was meant. */
  warnings?: { code: string; subject: string; message: string }[];
  /** Runs that started since then were searched; the next page has those before. Left out when the search is at its end. */
  searched_to?: string;
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
