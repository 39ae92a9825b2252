-- +goose Up
-- A task that shared a worker process which ended is a suspect: 1, or 2 while it is leased to a process that receives nothing else. NULL for all others, so
-- that what counts the suspects of a worker reads an index which mostly is empty.
ALTER TABLE tasks ADD COLUMN suspect INTEGER;
ALTER TABLE runs ADD COLUMN suspect INTEGER;
CREATE INDEX tasks_suspect ON tasks (namespace, owner, suspect) WHERE suspect IS NOT NULL;
CREATE INDEX runs_suspect ON runs (namespace, owner, suspect) WHERE suspect IS NOT NULL;
-- An app that does not know this would leave suspects where its claims do not look, and give up innocent tasks.
INSERT INTO schema_versions (version, release, min_reader) VALUES (20, '0.1.0', 20);
