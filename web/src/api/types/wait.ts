import type { Time } from "./common";
import type { WaitReason } from "./waits";

/** Why a run, a task or a session does not go on. lib/wait.ts says it in a sentence. */
export interface Wait {
  kind: string;
  reason: WaitReason;
  needs_attention: boolean;
  message: string; // the sentence as the app says it, with times in UTC: for reasons that this page does not know yet
  name?: string;
  task_queue?: string;
  group?: string; // whose workers alone may have it
  namespace?: string;
  worker_id?: string;
  worker_count?: number;
  session_id?: string;
  workflow_id?: string;
  missing?: string[];
  build_id?: string;
  worker_build_id?: string;
  release?: string;
  worker_release?: string;
  limit?: number;
  used?: number;
  failures?: number;
  by?: string;
  since?: Time;
  until?: Time;
  fallback_at?: Time;
  more?: number;
  detail?: string;
}
