package sqldb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
)

// A workflow that continues as new for years may have started children that are still open. Carried from run to
// run they would make each continuation as dear as there are children; so they stand under the workflow id, and
// the run only counts them.

// formerTable holds the open children that earlier runs of a workflow id started: by chain, so that a chain which goes
// on moves none of them. Whoever writes them holds the lock of the chain's current run.
var formerTable = &table{name: "former_children", keys: 3, prune: true, columns: []column{
	text("namespace"), text("workflow_id"), text("child_id"), num("bound").keep(), text("body"),
}}

// formerChain names all rows of a chain.
var formerChain = formerTable.columns[:2]

// former is the row of a former child in a batch; nil when there is none.
type former struct {
	*engine.FormerChild
	stored, dirty bool
}

func readFormer(v []any) (engine.FormerChild, error) {
	f := engine.FormerChild{Chain: engine.WorkflowKey{Namespace: str(v[0]), ID: str(v[1])}}
	if err := json.Unmarshal([]byte(str(v[4])), &f); err != nil {
		return f, fmt.Errorf("child %s of workflow %s: %w", str(v[2]), str(v[1]), err)
	}
	return f, nil
}

// formerWanted are the rows that changes ask for of the chains whose current runs are loaded: a run that has none costs
// no read.
func (b *batch) formerWanted(items []*pending) (rows map[engine.FormerKey]bool, chains map[engine.WorkflowKey]bool) {
	for _, p := range items {
		if p.change == nil || !p.change.Needs.Bound && len(p.change.Needs.Former) == 0 {
			continue
		}
		for _, id := range b.runsOf(&p.change.Needs) {
			r := b.runs[id]
			if r == nil || r.Run == nil || r.Former.Open == 0 {
				continue
			}
			chain := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
			if p.change.Needs.Bound && r.Former.Bound > 0 {
				if chains == nil {
					chains = map[engine.WorkflowKey]bool{}
				}
				chains[chain] = true
			}
			for _, child := range p.change.Needs.Former {
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
func (b *batch) loadFormer(rows map[engine.FormerKey]bool, chains map[engine.WorkflowKey]bool) []*Call {
	keys, whole := newRowset(formerTable.key()), newRowset(formerChain)
	for _, k := range slices.SortedFunc(maps.Keys(rows), compareFormer) {
		keys.s(k.Chain.Namespace).s(k.Chain.ID).s(k.Child)
	}
	for k := range chains {
		whole.s(k.Namespace).s(k.ID)
	}
	read := func(v []any) error {
		f, err := readFormer(v)
		if err == nil && b.former[f.Key()] == nil {
			b.former[f.Key()] = &former{FormerChild: &f, stored: true}
		}
		return err
	}
	locked := func(v []any) { b.lock(formerKey{Namespace: str(v[0]), ID: str(v[1])}) }
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

// The chain goes first where a decision drops it: what it adds behind that belongs to the chain that begins.
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
			f.FormerChild, f.stored = nil, true // it may be: a delete of nothing does no harm
		}
	}
}

// dropChain takes away all rows of a chain, those that were never loaded too.
func (b *batch) dropChain(chain engine.WorkflowKey) {
	for k, f := range b.former {
		if k.Chain == chain {
			*f = former{}
		}
	}
	b.removal.chains[chain] = true
}

// In the order of their keys, as all rows are written that several apps may write.
func (b *batch) gatherFormer() ([]*Call, error) {
	rows, gone := newRowset(formerTable.columns), newRowset(formerTable.key())
	for _, k := range slices.SortedFunc(maps.Keys(b.former), compareFormer) {
		f := b.former[k]
		switch {
		case !f.dirty:
		case f.FormerChild != nil:
			body, err := document(f.FormerChild)
			if err != nil {
				return nil, fmt.Errorf("child %s of workflow %s: %w", k.Child, k.Chain.ID, err)
			}
			rows.s(k.Chain.Namespace).s(k.Chain.ID).s(k.Child).i(flag(f.Bound())).s(body)
			f.stored = true
		case f.stored:
			gone.s(k.Chain.Namespace).s(k.Chain.ID).s(k.Child)
			f.stored = false
		}
		f.dirty = false
	}
	return append(b.s.st.dropFormer.calls(gone), b.s.st.putFormer.calls(rows)...), nil
}

func compareFormer(x, y engine.FormerKey) int {
	return cmp.Or(
		cmp.Compare(x.Chain.Namespace, y.Chain.Namespace), cmp.Compare(x.Chain.ID, y.Chain.ID), cmp.Compare(x.Child, y.Child),
	)
}

func (r *reader) FormerChildren(
	ctx context.Context, chain engine.WorkflowKey, limit int,
) (list []engine.FormerChild, err error) {
	query := selects(formerTable) + " WHERE namespace = $1 AND workflow_id = $2 ORDER BY child_id LIMIT $3"
	err = r.query(ctx, query, []any{chain.Namespace, chain.ID, int64(limit)}, func(v []any) error {
		f, err := readFormer(v)
		list = append(list, f)
		return err
	})
	return list, wrap(err, "children of workflow %s", chain.ID)
}
