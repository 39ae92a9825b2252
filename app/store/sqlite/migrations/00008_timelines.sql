-- +goose Up
-- What is kept of sessions that are gone leaves with its time.
CREATE INDEX session_events_at ON session_events (namespace, at);
