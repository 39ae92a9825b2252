-- +goose Up
-- What operators decided about task queues, and about all queues of a namespace in the row without a name.
CREATE TABLE queues (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, queue)
) WITHOUT ROWID;

-- Where ready tasks stand among the classes of their queue: 0 where no task ever had a fairness key.
ALTER TABLE tasks ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
DROP INDEX tasks_route;
CREATE INDEX tasks_route ON tasks (route, priority, rank, ready_at, run_id, seq) WHERE route IS NOT NULL;

-- The tag of every class of a priority of a queue, and in the class without a name the rank of what was taken last.
CREATE TABLE fairness (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    tier INTEGER NOT NULL,
    class TEXT NOT NULL,
    tag INTEGER NOT NULL,
    PRIMARY KEY (namespace, queue, kind, tier, class)
) WITHOUT ROWID;
