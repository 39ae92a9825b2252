-- +goose Up
-- A claim looks for sessions that fall back from a holder which left their tasks waiting; there are few.
CREATE INDEX sessions_open ON sessions (namespace, word) WHERE substr(word, 1, 1) = '~';
