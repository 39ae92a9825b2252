import type { Exact } from "../../lib/json";

export type Json = null | boolean | number | string | Exact | Json[] | { [key: string]: Json };
export type Time = string | null;

/** A value as it is stored: base64 in a codec. */
export type Envelope = { codec: string; blob: string };

/** Runs by status, counted up to a number; one more stands for any that is larger. */
export interface RunCounts {
  runs: Record<string, number>;
  counted_up_to: number;
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
  namespaces?: string[] | null; // those the token is bound to; none: all
  method?: string; // token, cookie, none
}

/** What a page may ask to hear of: one thing by its id, or whatever of the kind changes in the namespace. */
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

/** A namespace as it is made or changed; what is absent in a change stays. */
export interface NamespaceRequest {
  name: string;
  description?: string;
  retention_days?: number;
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
