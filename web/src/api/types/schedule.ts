import type { Json, Time } from "./common";

export interface ScheduleSpec {
  cron_expressions?: string[];
  intervals?: { every: string; offset?: string }[];
  timezone?: string;
}

export interface ScheduleAction {
  workflow_type: string;
  task_queue?: string;
  input?: Json;
  workflow_id?: string;
  business_key?: string;
  memo?: Json;
  search_attributes?: Json;
}

/** A schedule as it is made or changed; what is absent in a change stays. */
export interface ScheduleRequest {
  schedule_id?: string;
  spec: ScheduleSpec;
  action: ScheduleAction;
  overlap_policy: string;
  jitter_seconds: number;
  max_runs?: number;
  paused?: boolean;
  note: string;
}

/** What a backfill came to. */
export interface Backfilled {
  fires_attempted: number;
  results?: { fire_time: Time; outcome: string; reason?: string; workflow_id?: string }[];
}

export interface Schedule {
  schedule_id: string;
  namespace: string;
  workflow_type: string;
  status: string;
  paused: boolean;
  spec: ScheduleSpec;
  action: ScheduleAction;
  overlap_policy: string;
  jitter_seconds: number;
  max_runs: number | null;
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

/** A page of a schedule's history, newest first; next_cursor leads further back. */
export interface ScheduleHistory {
  events: ScheduleEvent[] | null;
  has_more: boolean;
  next_cursor: string | null;
}
