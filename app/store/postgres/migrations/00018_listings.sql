-- +goose Up
-- A range of an attribute's times is listed in the order of the list: the runs of each 19 hours of it, 2^36 microseconds, stand together that way.
CREATE INDEX run_attributes_time ON run_attributes (namespace, name, substr(value, 1, 8), started_at, run_id, value) WHERE substr(value, 1, 1) = 'd';
-- The build that a run is pinned to, which it is from its start on.
ALTER TABLE runs ADD COLUMN build_id TEXT COLLATE "C";
UPDATE runs SET build_id = regexp_replace(state, '\\u(0000|d[89a-f][0-9a-f]{2})', '\ufffd', 'gi')::json ->> 'build_id' WHERE strpos(state, '"build_id":"') > 0;
CREATE INDEX runs_build ON runs (namespace, build_id, started_at, run_id) WHERE build_id IS NOT NULL;
-- An app that does not know this would start runs that are not found by their build.
INSERT INTO schema_versions (version, release, min_reader) VALUES (18, '0.1.0', 18);
