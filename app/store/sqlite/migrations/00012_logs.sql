-- +goose Up
-- What the code of activities logged and printed, by attempt, as it came. Nothing is decided by it: it goes with its run, or with its age.
CREATE TABLE activity_logs (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    delivery INTEGER NOT NULL,
    part INTEGER NOT NULL,
    at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, seq, delivery, part)
) WITHOUT ROWID;
CREATE INDEX activity_logs_at ON activity_logs (at);
-- An app that does not know this takes no lines, and leaves those of the runs it removes to their age.
INSERT INTO schema_versions (version, release, min_reader) VALUES (12, '0.1.0', 11);
