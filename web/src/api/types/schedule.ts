import type { Json, Time } from "./common";

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
