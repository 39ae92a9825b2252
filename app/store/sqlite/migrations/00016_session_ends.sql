-- +goose Up
-- Of the rows that end attempts in a session only some lead to it by the index, as all of before do; those that soon follow one of the same run have
-- follows = 1 and are found behind it. A step in a session that is held pays for no entry of its own that way.
ALTER TABLE events ADD COLUMN follows INTEGER;
DROP INDEX events_session;
CREATE INDEX events_session ON events (session, at, run_id, seq) WHERE session IS NOT NULL AND follows IS NULL;
-- What is leased in a session is found by its holder, and by those who held it before and may have attempts in it still: a JSON list, or nothing.
ALTER TABLE sessions ADD COLUMN behind TEXT;
UPDATE sessions SET behind = (SELECT json_group_array(DISTINCT t.owner) FROM tasks AS t WHERE t.namespace = sessions.namespace AND t.session_id = sessions.session_id
    AND t.owner IS NOT NULL AND t.owner <> coalesce(sessions.owner, ''))
WHERE EXISTS (SELECT 1 FROM tasks AS t WHERE t.namespace = sessions.namespace AND t.session_id = sessions.session_id
    AND t.owner IS NOT NULL AND t.owner <> coalesce(sessions.owner, ''));
DROP INDEX tasks_session;
CREATE INDEX tasks_session ON tasks (namespace, session_id) WHERE session_id IS NOT NULL AND owner IS NULL;
DROP INDEX tasks_owner;
CREATE INDEX tasks_owner ON tasks (namespace, owner, session_id) WHERE owner IS NOT NULL;
-- An app that does not know this would look through all events for those of a session, and not count what former holders run.
INSERT INTO schema_versions (version, release, min_reader) VALUES (16, '0.1.0', 16);
