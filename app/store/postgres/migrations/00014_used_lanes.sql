-- +goose Up
-- When a lane was used last, to an hour: what had no task for a day goes. Lanes of before count as used now.
ALTER TABLE lanes ADD COLUMN used_at BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
-- An app that does not know this would make tasks ready in lanes that are gone, where no claim looks.
INSERT INTO schema_versions (version, release, min_reader) VALUES (14, '0.1.0', 14);
