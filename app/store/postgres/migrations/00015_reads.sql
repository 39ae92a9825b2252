-- +goose Up
-- What people ask about queues is answered by entries of an index and not by the rows of tasks, which carry their arguments. A task that is handed over as
-- it is made never enters it.
CREATE INDEX tasks_waiting ON tasks (namespace, queue, kind, state, ready_at, run_id, seq, priority, rank, owner) WHERE owner IS NULL;
-- The runs that wait for a repair are few, and may be anywhere among those that are open. Other documents may have these words; who reads looks.
CREATE INDEX runs_quarantined ON runs (namespace, status, started_at, run_id) WHERE status = 'running' AND owner IS NULL AND strpos(state, '"state":"quarantined"') > 0;
-- An app that does not know this would fail the firings of schedules that start activities by themselves.
INSERT INTO schema_versions (version, release, min_reader) VALUES (15, '0.1.0', 15);
