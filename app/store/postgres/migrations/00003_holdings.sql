-- +goose Up
-- What ran in a session is found by the events that ended its attempts: of those this is the session's namespace and id, chr(31) between them.
ALTER TABLE events ADD COLUMN session TEXT COLLATE "C";
CREATE INDEX events_session ON events (session, at, run_id, seq) WHERE session IS NOT NULL;
