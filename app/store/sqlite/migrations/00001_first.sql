-- +goose Up
-- Times are microseconds since 1970 in UTC, documents JSON text. A zero time, owner or route is NULL, so that partial indexes hold only live rows.
CREATE TABLE namespaces (
    name TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO namespaces (name, created_at, body) VALUES ('default', 0, '{}');

CREATE TABLE workflows (
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    runs INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow_id)
) WITHOUT ROWID;

CREATE TABLE runs (
    run_id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    type TEXT NOT NULL,
    number INTEGER NOT NULL,
    status TEXT NOT NULL,
    queue TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    closed_at INTEGER,
    last_seq INTEGER NOT NULL,
    due_at INTEGER,
    owner TEXT,
    business_key TEXT,
    state TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_start ON runs (namespace, started_at, run_id);
CREATE INDEX runs_workflow ON runs (namespace, workflow_id, number);
CREATE INDEX runs_status ON runs (namespace, status);
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_owner ON runs (namespace, owner) WHERE owner IS NOT NULL;

-- Appended to and never changed: a table by rowid, so that neighbours in time are neighbours on disk.
CREATE TABLE events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    task_id TEXT,
    seen_through INTEGER,
    payload TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);

-- The open activities of all runs, and as seq 0 their ready workflow tasks.
CREATE TABLE tasks (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    route TEXT,
    priority INTEGER NOT NULL,
    ready_at INTEGER,
    due_at INTEGER,
    owner TEXT,
    session_id TEXT,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE INDEX tasks_route ON tasks (route, priority, ready_at, run_id, seq) WHERE route IS NOT NULL;
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_owner ON tasks (namespace, owner) WHERE owner IS NOT NULL;
CREATE INDEX tasks_session ON tasks (namespace, session_id) WHERE session_id IS NOT NULL;

-- Open timers, signal waits and unseen signals.
CREATE TABLE items (
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    seq INTEGER NOT NULL,
    due_at INTEGER,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, kind, seq)
) WITHOUT ROWID;
CREATE INDEX items_due ON items (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE sessions (
    namespace TEXT NOT NULL,
    session_id TEXT NOT NULL,
    door TEXT NOT NULL,
    workflow_id TEXT,
    status TEXT NOT NULL,
    owner TEXT,
    epoch INTEGER NOT NULL,
    lease_until INTEGER,
    due_at INTEGER,
    updated_at INTEGER NOT NULL,
    queue TEXT NOT NULL,
    claimed INTEGER NOT NULL,
    terminal INTEGER NOT NULL,
    word TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, session_id)
) WITHOUT ROWID;
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sessions_owner ON sessions (namespace, owner) WHERE owner IS NOT NULL;
CREATE INDEX sessions_workflow ON sessions (namespace, workflow_id) WHERE workflow_id IS NOT NULL;

-- Who held a session when; it outlives the session's row.
CREATE TABLE session_events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    session_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX session_events_session ON session_events (namespace, session_id, id);

-- The highest epoch that clean-up removed, so that a fence never repeats.
CREATE TABLE epochs (
    namespace TEXT NOT NULL PRIMARY KEY,
    floor INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE workers (
    namespace TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    status TEXT NOT NULL,
    alive_until INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, worker_id)
) WITHOUT ROWID;

CREATE TABLE receipts (
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    hash TEXT NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow_id, request_id)
) WITHOUT ROWID;

CREATE TABLE tokens (
    token_id TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    identity TEXT NOT NULL,
    action TEXT NOT NULL,
    namespace TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
);

-- Every (type, requirements, build) that a queue ever had a task of: what a claim has to look at.
CREATE TABLE lanes (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    lane TEXT NOT NULL,
    PRIMARY KEY (namespace, queue, kind, lane)
) WITHOUT ROWID;

-- The last batch of each app: whether a COMMIT whose answer was lost took place, and the highest time given out.
CREATE TABLE batches (
    app TEXT NOT NULL PRIMARY KEY,
    batch INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
