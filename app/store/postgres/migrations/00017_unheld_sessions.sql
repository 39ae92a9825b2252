-- +goose Up
-- Sessions are counted by their status. One that somebody holds has no entry, which each renewal of its lease would write anew: those are found by when
-- their leases are over. So an entry is written when a session ends, or nobody has it.
CREATE INDEX sessions_unheld ON sessions (namespace, status, claimed, owner, door) WHERE (status <> 'active' OR owner IS NULL) AND (claimed = 1 OR door = 'workflow');
-- An app that does not know this counts as before.
INSERT INTO schema_versions (version, release, min_reader) VALUES (17, '0.1.0', 16);
