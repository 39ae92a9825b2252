-- +goose Up
-- What callers of one app ask workers who poll another. Their callers wait for them, so a crash may lose them: the table is not logged.
CREATE UNLOGGED TABLE questions (
    question_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    until BIGINT NOT NULL,
    owner TEXT COLLATE "C",
    incarnation TEXT COLLATE "C",
    attempt BIGINT NOT NULL,
    body TEXT NOT NULL,
    answer TEXT COLLATE "C"
);
CREATE INDEX questions_waiting ON questions (namespace, queue, kind, question_id) WHERE owner IS NULL;
