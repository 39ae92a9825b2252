-- +goose Up
-- What the code of activities logged and printed, by attempt, as it came. Nothing is decided by it: it goes with its run, or with its age.
CREATE TABLE activity_logs (
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    delivery BIGINT NOT NULL,
    part BIGINT NOT NULL,
    at BIGINT NOT NULL,
    size BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, seq, delivery, part)
);
CREATE INDEX activity_logs_at ON activity_logs (at);
-- An app that does not know this takes no lines, and leaves those of the runs it removes to their age.
INSERT INTO schema_versions (version, release, min_reader) VALUES (12, '0.1.0', 11);
