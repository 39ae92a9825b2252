-- +goose Up
-- Rows of sessions no longer say how many of their tasks run and wait: that is counted from the tasks, by whether somebody has them.
DROP INDEX tasks_session;
CREATE INDEX tasks_session ON tasks (namespace, session_id, owner) WHERE session_id IS NOT NULL;
-- An app that does not know this would take a session whose row says nothing for one in which nothing runs.
INSERT INTO schema_versions (version, release, min_reader) VALUES (11, '0.1.0', 11);
