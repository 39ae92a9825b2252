// Written by go generate from shared/protocol/wait.go, which says how the texts are read. Do not edit.

export const waitRules = {
  running: { form: "predicate", text: "runs on worker {worker}" },
  start_delay: { form: "alone", text: "its start is delayed until {until}" },
  retry_backoff: { form: "predicate", text: "waits for its back-off until {until}[, failed attempts so far: {failures}]" },
  handed_back: { form: "predicate", text: "was handed back by worker {worker}, and is offered again at {until}: {detail}" },
  returned_unstarted: { form: "predicate", text: "was returned {used} times in a row without having been started[, and was given to worker {worker} again]" },
  packages_installing: { form: "predicate", text: "waits for the packages of its handler on worker {worker}, and is offered again at {until}: {detail}" },
  packages_failed: { form: "predicate", text: "waits for the packages of its handler, which worker {worker} cannot install, and is offered again at {until}: {detail}" },
  quarantined: { form: "alone", text: "quarantined until repaired: {detail}" },
  timer: { form: "alone", text: "a timer fires at {until} by the database's clock" },
  signal: { form: "alone", text: "waits for signal {name}[; a timer fires at {until} by the database's clock]" },
  condition: { form: "alone", text: "waits for [condition {name}, which|a condition that] signals and updates may make true[; a timer fires at {until} by the database's clock]" },
  child: { form: "alone", text: "child workflow {workflow} of type {name} is open[ (and {more} more)]" },
  update: { form: "alone", text: "its code waits for an update: nothing else is open" },
  no_worker: { form: "clause", text: "[no live worker serves queue {queue}|no worker is alive]" },
  group_offline: { form: "clause", text: "routed to group {group}, of which no live worker serves queue {queue}" },
  worker_busy: { form: "clause", text: "ready for worker {worker}, which is busy or does not poll" },
  worker_full: { form: "clause", text: "[for worker {worker}, which holds session {session} and|ready for worker {worker}, which] runs {limit} tasks at once, its most[; any worker may take it from {fallback_at}]" },
  worker_draining: { form: "clause", text: "[session {session} is held by worker {worker}, which drains|worker {worker} drains][; any worker may take it from {fallback_at}][ (the nearest of {workers})]" },
  release_mismatch: { form: "clause", text: "[session {session} is held by ]worker {worker}: {detail}[; any worker may take it from {fallback_at}][ (the nearest of {workers})]" },
  type_not_served: { form: "clause", text: "worker {worker} does not run {name}[; any worker may take it from {fallback_at}][ (the nearest of {workers})]" },
  build_drained: { form: "clause", text: "worker {worker} has [build {worker_build}|no build id], which is drained on queue {queue}[; any worker may take it from {fallback_at}][ (the nearest of {workers})]" },
  build_pinned: { form: "clause", text: "pinned to build {build}, worker {worker} has [build {worker_build}|no build id][ (the nearest of {workers})]" },
  capability_missing: { form: "clause", text: "[session {session} ]needs {missing}, which worker {worker} does not offer[; any worker may take it from {fallback_at}][ (the nearest of {workers})]" },
  worker_without_sessions: { form: "clause", text: "worker {worker} registered with max_concurrent_worker_sessions 0[ (the nearest of {workers})]" },
  worker_sessions_full: { form: "clause", text: "worker {worker} is at its limit of sessions, {limit}[ (the nearest of {workers})]" },
  session_held: { form: "clause", text: "session {session} is held by worker {worker} until {until}[; any worker may take it from {fallback_at}]" },
  session_holder_busy: { form: "clause", text: "for worker {worker}, which holds session {session} and is busy or does not poll[; any worker may take it from {fallback_at}]" },
  session_full: { form: "clause", text: "session {session} runs {used} activities at once, its most[; {detail}][; any worker may take it from {fallback_at}]" },
  session_moving: { form: "clause", text: "session {session} changes hands; its queued tasks wait" },
  session_kept: { form: "clause", text: "session {session} is kept for worker {worker} until {until}" },
  session_release: { form: "clause", text: "session {session} stays with release {release} while that is served, worker {worker} is of [{worker_release}|none][ (the nearest of {workers})]" },
  session_lost: { form: "clause", text: "session {session} was lost ({detail}) and may not be acquired again" },
  session_ended: { form: "clause", text: "session {session} has ended: {detail}" },
  session_unclaimed: { form: "clause", text: "session {session} is for any worker; a claim will decide" },
  quota: { form: "alone", text: "quota {detail} of namespace {namespace} is exceeded: the child workflow begins when there is room" },
  suspect: { form: "predicate", text: "is a suspect of lost worker processes ({losses}[, blamed for {blamed}]) and waits for {detail}[, until {until} at most]" },
  budget_leases: { form: "clause", text: "[namespace {namespace}|queue {queue}] has {used} {tasks} tasks leased, its budget is {limit} at once" },
  budget_rate: { form: "clause", text: "[namespace {namespace}|queue {queue}] has handed out {used} {tasks} tasks in this minute, its budget is {limit}; more at {until}" },
} as const;

export type WaitReason = keyof typeof waitRules;

export const waitSubjects: Partial<Record<string, string>> = {
  activity: "[activity {activity}|an activity][ (and {more} more)]",
  workflow_task: "its next decision",
};
