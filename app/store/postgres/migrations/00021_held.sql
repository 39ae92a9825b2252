-- +goose Up
-- The quota that holds back the first task of a child workflow; NULL for all other runs, so that the index holds nothing else.
ALTER TABLE runs ADD COLUMN held TEXT COLLATE "C";
CREATE INDEX runs_held ON runs (namespace, started_at, run_id) WHERE held IS NOT NULL;
-- An app that does not know this would neither count what it commits nor release what is held.
INSERT INTO schema_versions (version, release, min_reader) VALUES (21, '0.1.0', 21);
