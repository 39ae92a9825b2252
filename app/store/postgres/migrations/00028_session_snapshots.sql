-- +goose Up
-- The state that the owner of a session stored for the next owner. Snapshots in the directory of the workers have no
-- row.
CREATE TABLE session_snapshots (
    namespace TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (namespace, session_id)
);
-- An app that does not know this would keep a snapshot as valid after a later activity of the session.
INSERT INTO schema_versions (version, release, min_reader) VALUES (28, '0.1.0', 28);
