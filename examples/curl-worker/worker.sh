#!/usr/bin/env bash
# A worker in shell: it does the activity "shout" of the queue "shell" for the app at SOJOURN_APP_URL.
set -euo pipefail
cd "$(dirname "$0")"

app=${SOJOURN_APP_URL:-http://127.0.0.1:7700}
id=shell-$$
headers=(-H 'Content-Type: application/json' -H 'X-Durable-Workflow-Protocol-Version: 1.20')
[ -z "${SOJOURN_TOKEN:-}" ] || headers+=(-H "Authorization: Bearer $SOJOURN_TOKEN")

call() { curl -sS --fail-with-body --max-time 90 "${headers[@]}" -X "$1" "$app/api/worker/$2" -d "$3"; }

# get EXPRESSION reads JSON, as j, and prints what the Python expression makes of it.
get() { python3 -c "import json, sys; j = json.load(sys.stdin); print($1)"; }

# json TEXT is the text as a JSON string.
json() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }

# The activity: its arguments are a JSON list, its result is JSON.
shout() { get 'json.dumps(j[0].upper() + "!")'; }

register() {
  call POST register "{\"worker_id\": \"$id\", \"task_queue\": \"shell\", \"runtime\": \"shell\", \"supported_activity_types\": [\"shout\"]}" >/dev/null
}

answer=$(mktemp) errors=$(mktemp)
trap 'kill $! 2>/dev/null || true; rm "$answer" "$errors"; call DELETE "registrations/$id" "{}" >/dev/null || true' EXIT
trap 'exit 0' INT TERM
register
echo "worker $id waits for work" >&2

while true; do
  call POST activity-tasks/poll "{\"worker_id\": \"$id\", \"task_queue\": \"shell\", \"timeout_seconds\": 30}" >"$answer" &
  wait $! || { sleep 1; register || true; continue; } # a trap interrupts wait, and nothing else here
  task=$(get 'json.dumps(j["task"])' <"$answer")
  [ "$task" != null ] || continue
  task_id=$(get 'j["task_id"]' <<<"$task")
  lease="\"lease_owner\": \"$id\", \"activity_attempt_id\": \"$(get 'j["activity_attempt_id"]' <<<"$task")\""
  arguments=$(python3 ../payload.py "$(get 'j["arguments"]["blob"]' <<<"$task")")

  if result=$(shout <<<"$arguments" 2>"$errors"); then
    call POST "activity-tasks/$task_id/complete" "{$lease, \"result\": $result}"
  else
    call POST "activity-tasks/$task_id/fail" "{$lease, \"failure\": {\"message\": $(json "$(tail -1 "$errors")"), \"type\": \"ShellError\"}}"
  fi | get 'json.dumps({k: j[k] for k in ("task_id", "outcome", "recorded")})' || true # refused: somebody else has it now
done
