-- +goose Up
-- Times are microseconds since 1970 in UTC, documents JSON text. A zero time, owner or route is NULL, so that partial indexes hold only live rows.
CREATE TABLE namespaces (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO namespaces (name, created_at, body) VALUES ('default', 0, '{}');

CREATE TABLE workflows (
    namespace TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    runs BIGINT NOT NULL,
    PRIMARY KEY (namespace, workflow_id)
);

CREATE TABLE runs (
    run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    closed_at BIGINT,
    last_seq BIGINT NOT NULL,
    due_at BIGINT,
    owner TEXT COLLATE "C",
    business_key TEXT COLLATE "C",
    state TEXT NOT NULL
);
CREATE INDEX runs_start ON runs (namespace, started_at, run_id);
CREATE INDEX runs_workflow ON runs (namespace, workflow_id, number);
CREATE INDEX runs_status ON runs (namespace, status);
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_owner ON runs (namespace, owner) WHERE owner IS NOT NULL;

-- Appended to and never changed.
CREATE TABLE events (
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    task_id TEXT COLLATE "C",
    seen_through BIGINT,
    payload TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);

-- The open activities of all runs, and as seq 0 their ready workflow tasks.
CREATE TABLE tasks (
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL,
    route TEXT COLLATE "C",
    priority BIGINT NOT NULL,
    ready_at BIGINT,
    due_at BIGINT,
    owner TEXT COLLATE "C",
    session_id TEXT COLLATE "C",
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX tasks_route ON tasks (route, priority, ready_at, run_id, seq) WHERE route IS NOT NULL;
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_owner ON tasks (namespace, owner) WHERE owner IS NOT NULL;
CREATE INDEX tasks_session ON tasks (namespace, session_id) WHERE session_id IS NOT NULL;

-- Open timers, signal waits and unseen signals.
CREATE TABLE items (
    run_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    due_at BIGINT,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, kind, seq)
);
CREATE INDEX items_due ON items (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE sessions (
    namespace TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    door TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C",
    epoch BIGINT NOT NULL,
    lease_until BIGINT,
    due_at BIGINT,
    updated_at BIGINT NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    claimed BIGINT NOT NULL,
    terminal BIGINT NOT NULL,
    word TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, session_id)
);
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sessions_owner ON sessions (namespace, owner) WHERE owner IS NOT NULL;
CREATE INDEX sessions_workflow ON sessions (namespace, workflow_id) WHERE workflow_id IS NOT NULL;

-- Who held a session when; it outlives the session's row.
CREATE TABLE session_events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX session_events_session ON session_events (namespace, session_id, id);

-- The highest epoch that clean-up removed, so that a fence never repeats.
CREATE TABLE epochs (
    namespace TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    floor BIGINT NOT NULL
);

CREATE TABLE workers (
    namespace TEXT COLLATE "C" NOT NULL,
    worker_id TEXT COLLATE "C" NOT NULL,
    incarnation TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    alive_until BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, worker_id)
);

CREATE TABLE receipts (
    namespace TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (namespace, workflow_id, request_id)
);

CREATE TABLE tokens (
    token_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hash TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    body TEXT NOT NULL
);

CREATE TABLE audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    identity TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    target TEXT COLLATE "C" NOT NULL,
    detail TEXT NOT NULL
);

-- Every (type, requirements, build) that a queue ever had a task of: what a claim has to look at.
CREATE TABLE lanes (
    namespace TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    lane TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, queue, kind, lane)
);

-- The last batch of each app: whether a COMMIT whose answer was lost took place, and the highest time given out.
CREATE TABLE batches (
    app TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    batch BIGINT NOT NULL,
    at BIGINT NOT NULL
);
