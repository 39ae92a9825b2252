// Package sqldb is the one SQL body of every store: group commit, loads, flushes, claims and reads, in words that
// SQLite and PostgreSQL share.
package sqldb

// A column is only what is asked by: keys, what an index needs, what one row is joined to another with. All else
// of a row is one JSON text, so that a new member of a run or a session needs no migration. The statements are
// made of these tables, so that both databases load and write the same columns in the same order.

// column is one column of a table. Every column is text or a 64-bit integer: documents are JSON text, times are
// microseconds.
type column struct {
	name  string
	num   bool // an integer, else text
	null  bool // the zero value is stored as NULL, so that partial indexes leave it out
	fixed bool // never changes after the insert: left out of updates, and so are its indexes
}

// table describes a table well enough to make its statements; the first keys columns are the primary key.
type table struct {
	name    string
	keys    int
	columns []column
	prune   bool // rows are deleted by key
	many    bool // thousands of rows are put at once
	// versioned says that a shared database gives the version of a row behind its columns: see recall.go.
	versioned bool
}

// opt is for columns whose empty value means that there is none, and keep for those that are never written again:
// an update that left them out touches none of their indexes.
func text(name string) column { return column{name: name} }
func num(name string) column  { return column{name: name, num: true} }
func (c column) opt() column  { c.null = true; return c }
func (c column) keep() column { c.fixed = true; return c }

// typ is the type of a column.
func (c column) typ() string {
	if c.num {
		return "bigint"
	}
	return "text"
}

func (t *table) key() []column { return t.columns[:t.keys] }

func (t *table) names() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// The tables of the committer. Column order is the order in which the rows are filled and read.
var (
	workflowsTable = &table{name: "workflows", keys: 2, versioned: true, columns: []column{
		text("namespace"), text("workflow_id"), text("run_id"), num("runs"),
	}}
	runsTable = &table{name: "runs", keys: 1, versioned: true, columns: []column{
		text("run_id"), text("namespace").keep(), text("workflow_id").keep(), text("type").keep(), num("number").keep(),
		text("status"),
		text("queue").keep(), num("started_at").keep(), num("closed_at").opt(), num("last_seq"), num("due_at").opt(),
		text("owner").opt(),
		text("business_key").opt().keep(), text("state"),
	}}
	eventsTable = &table{name: "events", keys: 2, columns: []column{
		text("run_id"), num("seq"), num("at"), text("type"), text("task_id").opt(), num("seen_through").opt(),
		text("payload"), text("session").opt(), num("last").opt(), num("ended").opt(), text("heads").opt(),
		num("follows").opt(),
	}}
	tasksTable = &table{name: "tasks", keys: 2, prune: true, columns: []column{
		text("run_id"), num("seq"), text("namespace").keep(), text("queue").keep(), text("kind").keep(), text("state"),
		text("route").opt(),
		num("priority").keep(), num("ready_at").opt(), num("due_at").opt(), text("owner").opt(),
		text("session_id").opt().keep(), text("body"), num("rank"),
	}}
	itemsTable = &table{name: "items", keys: 3, prune: true, columns: []column{
		text("run_id"), text("kind"), num("seq"), num("due_at").opt(), text("body"),
	}}
	sessionsTable = &table{name: "sessions", keys: 2, prune: true, many: true, versioned: true, columns: []column{
		text("namespace"), text("session_id"), text("door").keep(), text("workflow_id").opt().keep(), text("status"),
		text("owner").opt(), num("epoch"),
		num("lease_until").opt(), num("due_at").opt(), num("updated_at"), text("queue"), num("claimed"), num("terminal"),
		text("word"), text("body"), text("behind").opt(),
	}}
	timelineTable = &table{name: "session_events", columns: []column{
		text("namespace"), text("session_id"), num("at"), text("body"),
	}}
	epochsTable  = &table{name: "epochs", keys: 1, columns: []column{text("namespace"), num("floor")}}
	workersTable = &table{name: "workers", keys: 2, prune: true, columns: []column{
		text("namespace"), text("worker_id"), text("incarnation"), text("status"), num("alive_until"), num("updated_at"),
		text("body"),
	}}
	receiptsTable = &table{name: "receipts", keys: 3, columns: []column{
		text("namespace"), text("workflow_id"), text("request_id"), text("hash"), text("body"), num("at"),
	}}
	tokensTable = &table{name: "tokens", keys: 1, prune: true, columns: []column{
		text("token_id"), text("hash"), num("created_at"), num("expires_at").opt(), num("revoked_at").opt(), text("body"),
	}}
	auditTable = &table{name: "audit", columns: []column{
		num("at"), text("identity"), text("action"), text("namespace"), text("target"), text("detail"),
	}}
	lanesTable = &table{
		name: "lanes", keys: 4, columns: []column{
			text("namespace"), text("queue"), text("kind"), text("lane"), num("used_at"),
		},
	}
)
