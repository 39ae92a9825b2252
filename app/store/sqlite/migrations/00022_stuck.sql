-- +goose Up
-- failing: the run's own workflow task failed three times in a row or is quarantined. unserved: one of its tasks is ready
-- and no live worker may lease it, since when and why. Both are NULL for all other runs, so that the index of stuck runs
-- holds nothing else; with its last two columns it also counts them by reason.
ALTER TABLE runs ADD COLUMN failing TEXT;
ALTER TABLE runs ADD COLUMN unserved TEXT;
ALTER TABLE runs ADD COLUMN unserved_at INTEGER;
ALTER TABLE runs ADD COLUMN unserved_why TEXT;
UPDATE runs SET failing = 'quarantined' WHERE status = 'running' AND owner IS NULL AND instr(state, '"state":"quarantined"') > 0
    AND json_extract(state, '$.task.state') = 'quarantined';
CREATE INDEX runs_stuck ON runs (namespace, started_at, run_id, failing, unserved, closed_at) WHERE closed_at IS NULL AND (failing IS NOT NULL OR unserved IS NOT NULL);
CREATE INDEX runs_unserved ON runs (run_id) WHERE unserved IS NOT NULL;
-- An app that does not know this would leave failing runs out of the index.
INSERT INTO schema_versions (version, release, min_reader) VALUES (22, '0.1.0', 22);
