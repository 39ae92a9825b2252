-- +goose Up
CREATE TABLE schedules (
    namespace TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    status TEXT NOT NULL,
    due_at INTEGER,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, schedule_id)
) WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (due_at) WHERE due_at IS NOT NULL;

-- What happened to a schedule, as long as there is one.
CREATE TABLE schedule_events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX schedule_events_schedule ON schedule_events (namespace, schedule_id, seq);
