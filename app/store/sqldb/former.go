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
// each continuation would cost as much as there are children; so they are stored under the workflow ID, and the run
// only counts them.

// formerChain names all rows of a chain.
var formerChain = record.Former.Columns[:2]

// former is the row of a former child in a batch; nil when there is none.
type former struct {
	*engine.FormerChild
	stored, dirty bool
}

// wantsFormer reports whether a change asks for rows of former children, where there are some.
func wantsFormer(n *store.Keys) bool { return n.Bound || n.Attached || len(n.Former) > 0 }

// formerWanted are the rows that changes ask for of the chains whose current runs are loaded: a run that has none costs
// no read.
func (b *batch) formerWanted(items []*pending) (rows map[engine.FormerKey]bool, chains map[engine.WorkflowKey]bool) {
	for _, p := range items {
		if p.transaction == nil {
			continue
		}
		needs := &p.transaction.Needs
		if !wantsFormer(needs) {
			continue
		}
		for _, id := range b.runsOf(needs) {
			r := b.runs[id]
			if r == nil || r.Run == nil || r.Former.Open == 0 {
				continue
			}
			chain := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
			if needs.Bound && r.Former.Bound > 0 {
				if chains == nil {
					chains = map[engine.WorkflowKey]bool{}
				}
				chains[chain] = true
			}
			children := slices.Clip(needs.Former)
			if needs.Attached {
				for _, a := range r.Attached.All() {
					children = append(children, a.WorkflowID)
				}
			}
			for _, child := range children {
				if rows == nil {
					rows = map[engine.FormerKey]bool{}
				}
				rows[engine.FormerKey{Chain: chain, Child: child}] = true
			}
		}
	}
	return rows, chains
}

// loadFormer reads them. No cache keeps them: they are asked for seldom.
func (b *batch) loadFormer(rows map[engine.FormerKey]bool, chains map[engine.WorkflowKey]bool) []*db.Call {
	keys, whole := db.NewRowset(record.Former.Key()), db.NewRowset(formerChain)
	for _, k := range slices.SortedFunc(maps.Keys(rows), compareFormer) {
		keys.S(k.Chain.Namespace).S(k.Chain.ID).S(k.Child)
	}
	for k := range chains {
		whole.S(k.Namespace).S(k.ID)
	}
	read := func(v []any) error {
		f, err := record.ReadFormer(v)
		if err == nil && b.former[f.Key()] == nil {
			b.former[f.Key()] = &former{FormerChild: &f, stored: true}
		}
		return err
	}
	locked := func(v []any) { b.lock(formerKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) }
	return append(b.fetch(b.s.st.former, keys, read, locked), b.fetch(b.s.st.bound, whole, read, locked)...)
}

// FormerChild and BoundChildren are the rows as the batch leaves them.
func (b *batch) FormerChild(k engine.FormerKey) *engine.FormerChild {
	if f := b.former[k]; f != nil {
		return f.FormerChild
	}
	return nil
}

func (b *batch) BoundChildren(chain engine.WorkflowKey) (list []*engine.FormerChild) {
	for k, f := range b.former {
		if k.Chain == chain && f.FormerChild != nil && f.Bound() {
			list = append(list, f.FormerChild)
		}
	}
	slices.SortFunc(list, func(x, y *engine.FormerChild) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Seq, y.Seq))
	})
	return list
}

// If a decision drops the chain, this comes first: rows that it adds belong to the chain that begins.
func (b *batch) applyFormer(d *engine.Decision) {
	chain := engine.WorkflowKey{Namespace: d.Next.Namespace, ID: d.Next.WorkflowID}
	if d.DropFormer {
		b.dropChain(chain)
	}
	for i := range d.Former {
		row := d.Former[i].Child
		f := b.former[row.Key()]
		if f == nil {
			f = &former{}
			b.former[row.Key()] = f
		}
		f.FormerChild, f.dirty = &row, true
		if d.Former[i].Gone {
			f.FormerChild, f.stored = nil, true // it may be stored: deleting a missing row has no effect
		}
	}
}

// dropChain deletes all rows of a chain, including rows that were never loaded.
func (b *batch) dropChain(chain engine.WorkflowKey) {
	for k, f := range b.former {
		if k.Chain == chain {
			*f = former{}
		}
	}
	b.removal.chains[chain] = true
}

// In the order of their keys, as all rows are written that several apps may write.
func (b *batch) gatherFormer() ([]*db.Call, error) {
	rows, gone := db.NewRowset(record.Former.Columns), db.NewRowset(record.Former.Key())
	for _, k := range slices.SortedFunc(maps.Keys(b.former), compareFormer) {
		f := b.former[k]
		switch {
		case !f.dirty:
		case f.FormerChild != nil:
			body, err := record.Document(f.FormerChild)
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
	return append(b.s.st.dropFormer.Calls(gone), b.s.st.putFormer.Calls(rows)...), nil
}

func compareFormer(x, y engine.FormerKey) int {
	return cmp.Or(
		cmp.Compare(x.Chain.Namespace, y.Chain.Namespace), cmp.Compare(x.Chain.ID, y.Chain.ID), cmp.Compare(x.Child, y.Child),
	)
}
