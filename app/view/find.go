package view

import (
	"context"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// foundPrefixes is the maximum number of objects of each kind that Find returns for a prefix.
const foundPrefixes = 5

// Find returns the objects of any kind that have an ID, and objects whose IDs begin with it. Its cost is independent of
// the number of objects.
func (v *View) Find(ctx context.Context, in protocol.FindRequest) (protocol.FindResponse, error) {
	a := protocol.FindResponse{Matches: []protocol.Found{}, Prefixes: []protocol.Found{}}
	if err := protocol.CheckLimits(in); err != nil {
		return a, err
	}
	if in.ID == "" {
		return a, protocol.Invalid("id", "is needed")
	}
	var f store.Finding
	err := v.store.View(ctx, func(r store.Reader) (err error) {
		f, err = r.Find(ctx, transaction.NamespaceOrDefault(in.Namespace), in.ID, foundPrefixes)
		return err
	})
	for _, e := range f.Exact {
		a.Matches = append(a.Matches, found(e))
	}
	for _, e := range f.Prefixes {
		a.Prefixes = append(a.Prefixes, found(e))
	}
	return a, err
}

func found(e store.Found) protocol.Found {
	out := protocol.Found{
		Kind: e.Kind, ID: e.ID, WorkflowID: e.WorkflowID, RunID: e.Run, WorkflowType: e.Type, Status: e.Status,
		RunKind: e.RunKind, Sequence: e.Sequence,
	}
	if e.Type != "" && e.RunKind == "" {
		out.RunKind = protocol.RunOfWorkflow
	}
	if !e.At.IsZero() {
		out.At = &e.At
	}
	return out
}
