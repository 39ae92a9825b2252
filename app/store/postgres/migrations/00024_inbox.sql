-- +goose Up
-- Signals that runs inherit without copies. inbox is the run whose end made the inbox, body the payload of the event, bytes the sum of the payload
-- sizes of this and all earlier signals of the inbox. A run names its inbox and the lowest number that its history contains: signals below the lowest
-- number of all runs are deleted with the run that was the last to contain them.
CREATE TABLE signal_inbox (
    inbox TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    body TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (inbox, number)
);
ALTER TABLE runs ADD COLUMN inbox TEXT COLLATE "C";
ALTER TABLE runs ADD COLUMN inbox_from BIGINT;
CREATE INDEX runs_inbox ON runs (inbox, inbox_from) WHERE inbox IS NOT NULL;
-- An app that does not know this would miss these events in histories.
INSERT INTO schema_versions (version, release, min_reader) VALUES (24, '0.1.0', 24);
