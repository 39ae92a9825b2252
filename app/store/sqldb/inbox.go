package sqldb

import (
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// The signals of an inbox are deleted with the runs whose histories contain them. The numbers that the runs of a chain
// inherit only increase, so all signals below the lowest number that is still inherited belong only to deleted runs. A
// transaction that deletes a run holds the lock of its workflow ID, so no other one deletes a run of the same chain
// meanwhile.

// dropInbox returns the statement that deletes the signals of inboxes that belong to no run. It runs after the deletion
// of the runs.
func dropInbox(d db.Dialect) string {
	key := record.SignalInbox.Columns[:1]
	const unused = "t.number < coalesce((SELECT min(r.inbox_from) FROM runs AS r WHERE r.inbox = k.inbox), 9223372036854775807)"
	if d.Shared {
		return "DELETE FROM signal_inbox WHERE ctid = ANY(ARRAY(" +
			d.Probe(key, "t.ctid", record.SignalInbox.Name, unused, "") + "))"
	}
	return "DELETE FROM signal_inbox WHERE (inbox, number) IN (" +
		d.Probe(key, "t.inbox, t.number", record.SignalInbox.Name, unused, "") + ")"
}

// gatherInboxRemoval returns the call that deletes signals which only deleted runs had inherited.
func (b *batch) gatherInboxRemoval() []*db.Call {
	if len(b.removal.inboxes) == 0 {
		return nil
	}
	keys := db.NewRowset(record.SignalInbox.Columns[:1])
	for _, id := range slices.Sorted(maps.Keys(b.removal.inboxes)) {
		keys.S(id)
	}
	return []*db.Call{{Stmt: b.s.st.dropInbox, Args: b.s.cfg.Dialect.Keys(keys)}}
}
