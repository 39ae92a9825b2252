-- +goose Up
-- What operators decided about task queues, and about all queues of a namespace in the row without a name.
CREATE TABLE queues (
    namespace TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, queue)
);
