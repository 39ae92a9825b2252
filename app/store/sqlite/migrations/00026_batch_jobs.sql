-- +goose Up
-- Batch jobs, and one row for each run that a job concerns. reason and message are set if the run refused the action.
CREATE TABLE batch_jobs (
    namespace TEXT NOT NULL,
    job_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    closed_at INTEGER,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, job_id)
) WITHOUT ROWID;
CREATE INDEX batch_jobs_created ON batch_jobs (namespace, created_at, job_id);
CREATE INDEX batch_jobs_open ON batch_jobs (namespace, job_id) WHERE closed_at IS NULL;
CREATE TABLE batch_runs (
    namespace TEXT NOT NULL,
    job_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    state TEXT NOT NULL,
    at INTEGER,
    reason TEXT,
    message TEXT,
    PRIMARY KEY (namespace, job_id, number)
) WITHOUT ROWID;
-- An app that does not know this would keep the jobs of a namespace that it deletes.
INSERT INTO schema_versions (version, release, min_reader) VALUES (26, '0.1.0', 26);
