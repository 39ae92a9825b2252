-- +goose Up
-- What callers of one app ask workers who poll another. A SQLite file has one app, which asks in memory: here the table stays empty.
CREATE TABLE questions (
    question_id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    until INTEGER NOT NULL,
    owner TEXT,
    incarnation TEXT,
    attempt INTEGER NOT NULL,
    body TEXT NOT NULL,
    answer TEXT
) WITHOUT ROWID;
CREATE INDEX questions_waiting ON questions (namespace, queue, kind, question_id) WHERE owner IS NULL;
