package sqldb

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/quota"
)

// What a batch changes in the usage of namespaces is known from its decisions, so it is counted without a statement.

// Quotas counts what the commits of this process change in the usage of namespaces.
func (s *Store) Quotas() *quota.Ledger { return s.ledger }

// uses adds to what the batch changes in the usage of a namespace.
func (b *batch) uses(namespace string, u engine.Usage) {
	if u == (engine.Usage{}) {
		return
	}
	if b.usage == nil {
		b.usage = map[string]engine.Usage{}
	}
	b.usage[namespace] = b.usage[namespace].Plus(u)
}

// Quotas includes what the batch has decided so far.
func (b *batch) Quotas(namespace string) engine.QuotaStanding {
	return b.s.ledger.Standing(namespace, b.usage[namespace])
}

// used counts a batch that was committed.
func (b *batch) used() {
	for namespace, u := range b.usage {
		b.s.ledger.Add(namespace, u)
	}
}
