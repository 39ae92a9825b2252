-- +goose Up
-- What operators decided about task queues, and about all queues of a namespace in the row without a name.
CREATE TABLE queues (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, queue)
) WITHOUT ROWID;
