-- +goose Up
-- A row of a history may hold several events that were stored together. Its key is then the first one's sequence, last that of the last; payload has
-- theirs one to a line, and heads, a JSON list in the same order, what else they have. A row without these holds one event, as all of before do.
-- Ends of attempts in a session share a row only with others of that session and time: at is theirs then, and ended how many, when more than one.
ALTER TABLE events ADD COLUMN last BIGINT;
ALTER TABLE events ADD COLUMN ended BIGINT;
ALTER TABLE events ADD COLUMN heads TEXT COLLATE "C";
DROP INDEX events_session;
CREATE INDEX events_session ON events (session, at, ended) WHERE session IS NOT NULL;
-- An app that does not know this would not see all events.
INSERT INTO schema_versions (version, release, min_reader) VALUES (13, '0.1.0', 13);
