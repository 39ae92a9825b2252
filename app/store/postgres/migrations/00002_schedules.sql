-- +goose Up
CREATE TABLE schedules (
    namespace TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    due_at BIGINT,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, schedule_id)
);
CREATE INDEX schedules_due ON schedules (due_at) WHERE due_at IS NOT NULL;

-- What happened to a schedule, as long as there is one.
CREATE TABLE schedule_events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX schedule_events_schedule ON schedule_events (namespace, schedule_id, seq);
