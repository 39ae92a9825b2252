-- +goose Up
-- The values of the search attributes of runs, in a form that orders as they do: what filters of listings find runs by.
CREATE TABLE run_attributes (
    run_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, name, value)
);
CREATE INDEX run_attributes_value ON run_attributes (namespace, name, value, started_at, run_id);

-- Each filter of a listing has an index that yields it newest first.
DROP INDEX runs_status;
CREATE INDEX runs_status ON runs (namespace, status, started_at, run_id);
CREATE INDEX runs_type ON runs (namespace, type, started_at, run_id);
CREATE INDEX runs_queue ON runs (namespace, queue, started_at, run_id);
CREATE INDEX runs_business_key ON runs (namespace, business_key, started_at, run_id) WHERE business_key IS NOT NULL;
CREATE INDEX runs_closed ON runs (namespace, closed_at, run_id) WHERE closed_at IS NOT NULL;
