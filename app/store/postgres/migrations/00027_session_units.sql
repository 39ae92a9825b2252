-- +goose Up
-- What a session uses of the resources of its owner, and of the worker that prepares it, with the process of that worker.
ALTER TABLE sessions ADD COLUMN units TEXT COLLATE "C";
ALTER TABLE sessions ADD COLUMN prepare_units TEXT COLLATE "C";
-- An app that does not know this would let workers exceed their resources.
INSERT INTO schema_versions (version, release, min_reader) VALUES (27, '0.1.0', 27);
