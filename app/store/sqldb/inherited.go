package sqldb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// A workflow that continues as new for years may have started children that are still open. If every run copied them,
// each continuation would cost as much as there are children. Therefore they are stored under the workflow ID, and the
// run only counts them.

// inheritedChain is the key of all rows of a chain.
var inheritedChain = record.InheritedChildren.Columns[:2]

// inheritedRow is the row of a child of an earlier run in a batch; nil if there is none.
type inheritedRow struct {
	*engine.InheritedChild
	stored, dirty bool
}

// needsInherited reports whether a transaction needs rows of children of earlier runs.
func needsInherited(n *store.Keys) bool { return n.Bound || n.Attached || len(n.Inherited) > 0 }

// neededInherited returns the rows that transactions need, of the chains whose current runs are loaded. A run without
// such children costs no read.
func (b *batch) neededInherited(
	items []*pending,
) (rows map[engine.InheritedKey]bool, chains map[engine.WorkflowKey]bool) {
	for _, p := range items {
		if p.transaction == nil {
			continue
		}
		needs := &p.transaction.Needs
		if !needsInherited(needs) {
			continue
		}
		for _, id := range b.runsOf(needs) {
			r := b.runs[id]
			if r == nil || r.Run == nil || r.Inherited.Open == 0 {
				continue
			}
			chain := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
			if needs.Bound && r.Inherited.Bound > 0 {
				if chains == nil {
					chains = map[engine.WorkflowKey]bool{}
				}
				chains[chain] = true
			}
			children := slices.Clip(needs.Inherited)
			if needs.Attached {
				for _, a := range r.Attached.All() {
					children = append(children, a.WorkflowID)
				}
			}
			for _, child := range children {
				if rows == nil {
					rows = map[engine.InheritedKey]bool{}
				}
				rows[engine.InheritedKey{Chain: chain, Child: child}] = true
			}
		}
	}
	return rows, chains
}

// loadInherited returns the calls that read these rows. They are needed seldom, so they are not cached.
func (b *batch) loadInherited(rows map[engine.InheritedKey]bool, chains map[engine.WorkflowKey]bool) []*db.Call {
	keys, whole := db.NewRowset(record.InheritedChildren.Key()), db.NewRowset(inheritedChain)
	for _, k := range slices.SortedFunc(maps.Keys(rows), compareInherited) {
		keys.S(k.Chain.Namespace).S(k.Chain.ID).S(k.Child)
	}
	for k := range chains {
		whole.S(k.Namespace).S(k.ID)
	}
	read := func(v []any) error {
		f, err := record.ReadInherited(v)
		if err == nil && b.inherited[f.Key()] == nil {
			b.inherited[f.Key()] = &inheritedRow{InheritedChild: &f, stored: true}
		}
		return err
	}
	locked := func(v []any) { b.markLocked(inheritedKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) }
	return append(b.fetch(b.s.st.inherited, keys, read, locked), b.fetch(b.s.st.bound, whole, read, locked)...)
}

// InheritedChild and BoundChildren return the rows in the state of the batch.
func (b *batch) InheritedChild(k engine.InheritedKey) *engine.InheritedChild {
	if f := b.inherited[k]; f != nil {
		return f.InheritedChild
	}
	return nil
}

func (b *batch) BoundChildren(chain engine.WorkflowKey) (list []*engine.InheritedChild) {
	for k, f := range b.inherited {
		if k.Chain == chain && f.InheritedChild != nil && f.Bound() {
			list = append(list, f.InheritedChild)
		}
	}
	slices.SortFunc(list, func(x, y *engine.InheritedChild) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Seq, y.Seq))
	})
	return list
}

// If a decision drops the chain, that comes first: rows that it adds belong to the new chain.
func (b *batch) applyInherited(d *engine.Decision) {
	chain := engine.WorkflowKey{Namespace: d.Next.Namespace, ID: d.Next.WorkflowID}
	if d.DropInherited {
		b.dropChain(chain)
	}
	for i := range d.Inherited {
		row := d.Inherited[i].Child
		f := b.inherited[row.Key()]
		if f == nil {
			f = &inheritedRow{}
			b.inherited[row.Key()] = f
		}
		f.InheritedChild, f.dirty = &row, true
		if d.Inherited[i].Deleted {
			f.InheritedChild, f.stored = nil, true // it may be stored; deleting a missing row has no effect
		}
	}
}

// dropChain deletes all rows of a chain, including rows that were never loaded.
func (b *batch) dropChain(chain engine.WorkflowKey) {
	for k, f := range b.inherited {
		if k.Chain == chain {
			*f = inheritedRow{}
		}
	}
	b.removal.chains[chain] = true
}

// In the order of keys, like all rows that several apps may write.
func (b *batch) gatherInherited() ([]*db.Call, error) {
	rows, gone := db.NewRowset(record.InheritedChildren.Columns), db.NewRowset(record.InheritedChildren.Key())
	for _, k := range slices.SortedFunc(maps.Keys(b.inherited), compareInherited) {
		f := b.inherited[k]
		switch {
		case !f.dirty:
		case f.InheritedChild != nil:
			body, err := record.Document(f.InheritedChild)
			if err != nil {
				return nil, fmt.Errorf("child %s of workflow %s: %w", k.Child, k.Chain.ID, err)
			}
			rows.S(k.Chain.Namespace).S(k.Chain.ID).S(k.Child).I(record.Flag(f.Bound())).S(body)
			f.stored = true
		case f.stored:
			gone.S(k.Chain.Namespace).S(k.Chain.ID).S(k.Child)
			f.stored = false
		}
		f.dirty = false
	}
	return append(b.s.st.deleteInherited.Calls(gone), b.s.st.putInherited.Calls(rows)...), nil
}

func compareInherited(x, y engine.InheritedKey) int {
	return cmp.Or(
		cmp.Compare(x.Chain.Namespace, y.Chain.Namespace), cmp.Compare(x.Chain.ID, y.Chain.ID), cmp.Compare(x.Child, y.Child),
	)
}
