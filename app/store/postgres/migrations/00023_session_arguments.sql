-- +goose Up
-- The arguments of the definition of a session. A row exists as long as the row of its session.
CREATE TABLE session_arguments (
    namespace TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (namespace, session_id)
);
-- An app that does not know this would let workers acquire the session that have not registered its definition.
INSERT INTO schema_versions (version, release, min_reader) VALUES (23, '0.1.0', 23);
