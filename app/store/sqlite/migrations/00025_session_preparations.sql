-- +goose Up
-- The worker that sets a session up before it owns the session, and the end of its lease. Its place counts towards the worker's maximum of sessions.
ALTER TABLE sessions ADD COLUMN prepare_for TEXT;
ALTER TABLE sessions ADD COLUMN prepare_until INTEGER;
CREATE INDEX sessions_prepare ON sessions (namespace, prepare_for) WHERE prepare_for IS NOT NULL;
-- An app that does not know this would let a worker exceed its maximum of sessions, and would keep a preparation whose epoch has ended.
INSERT INTO schema_versions (version, release, min_reader) VALUES (25, '0.1.0', 25);
