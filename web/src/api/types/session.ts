import type { Time } from "./common";
import type { Wait } from "./wait";

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
  affinity?: string; // hard, soft
  fallback_after_seconds?: number;
  max_concurrent_activities: number;
  active_activity_count: number;
  ready_activity_count: number;
  release?: string;
  last_activity_at: Time;
  last_heartbeat_at: Time;
  created_at: Time;
  updated_at: Time;
  wait?: Wait;
  timeline?: SessionEvent[] | null; // its newest entries, oldest first
  timeline_page_token?: string | null; // leads to those before them
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

/** A page of a session's timeline, oldest entry first; the next page has those before it. */
export interface SessionPast {
  timeline: SessionEvent[] | null;
  next_page_token: string | null;
}
