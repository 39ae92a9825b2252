-- +goose Up
-- The open children that earlier runs of a workflow id started before it continued as new. They belong to the chain of runs and stay where they are
-- when it goes on; bound ones go by a close policy when it ends.
CREATE TABLE former_children (
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    child_id TEXT NOT NULL,
    bound INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, workflow_id, child_id)
) WITHOUT ROWID;
CREATE INDEX former_children_bound ON former_children (namespace, workflow_id) WHERE bound = 1;
-- An app that knows nothing of them would end a chain and leave its children running.
INSERT INTO schema_versions (version, release, min_reader) VALUES (10, '0.1.0', 10);
