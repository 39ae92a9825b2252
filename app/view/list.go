package view

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/filter"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Listings are the only reads whose cost the caller determines: an index may serve a filter, or none. A search without
// an index is limited by time rather than by rows, because the time that it occupies the database is what slows other
// callers.

// These are the time limits of a search without an index: partialSearch for a caller that accepts a partial result,
// wholeSearch for others.
const (
	partialSearch = 80 * time.Millisecond
	wholeSearch   = 2 * time.Second
)

// knownStatus rejects an unknown status, since an empty list would mean that nothing has this status.
func knownStatus[S ~string](word string, all []S) error {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = string(s)
	}
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return protocol.Invalid("status", "must be one of %s, not %q", strings.Join(words, ", "), word)
}

// List pages through runs.
func (v *View) List(ctx context.Context, in protocol.ListRequest) (protocol.ListResponse, error) {
	q := store.RunQuery{
		Namespace: transaction.NamespaceOrDefault(in.Namespace), Type: in.WorkflowType, Text: in.Query,
		Limit: pageSize(in.PageSize, 50, 200) + 1, Budget: wholeSearch,
	}
	if in.Partial {
		q.Budget = partialSearch
	}
	var types map[string]string
	var err error
	if filter.Is(in.Query) {
		if types, err = v.opt.AppState.AttributeTypes(ctx, q.Namespace); err != nil {
			return protocol.ListResponse{}, err
		}
		if q.Where, err = filter.Parse(in.Query, types); err != nil {
			return protocol.ListResponse{}, err
		}
		q.Text = ""
	}
	if err := ofKind(&q, in.Kind); err != nil {
		return protocol.ListResponse{}, err
	}
	if in.Stuck {
		q.Where = append(q.Where, store.Condition{Field: store.FieldStuck, Test: store.Present})
	}
	if q.Statuses, err = filter.Statuses(in.Status, in.StoredStatus); err != nil {
		return protocol.ListResponse{}, err
	}
	if q.AfterStart, q.AfterRun, err = parseCursor(in.PageToken); err != nil {
		return protocol.ListResponse{}, err
	}
	var now time.Time
	if in.WaitReasons {
		if now, err = v.store.Now(ctx); err != nil {
			return protocol.ListResponse{}, err
		}
	}
	a := protocol.ListResponse{Workflows: []protocol.RunView{}}
	err = v.store.View(ctx, func(r store.Reader) error {
		list, err := r.Runs(ctx, q)
		if err != nil {
			return err
		}
		heads := list.Heads
		if to := list.SearchedTo; to.Run != "" {
			if !in.Partial {
				return protocol.Refuse(
					protocol.ReasonQueryTooBroad, "no index finds these runs, and those since %s alone took %s to read: "+
						"add a condition on StartTime, or ask for partial pages", to.Start, wholeSearch,
				)
			}
			a.SearchedTo, a.NextPageToken = &to.Start, cursor(to.Start, to.Run)
		}
		// One more entry is read than is returned: it shows whether there is a next page without a count.
		if len(heads) == q.Limit {
			heads = heads[:q.Limit-1]
			last := heads[len(heads)-1]
			a.NextPageToken = cursor(last.StartedAt, last.ID)
		}
		if err := currentOf(ctx, r, q.Namespace, heads, &a); err != nil {
			return err
		}
		if in.WaitReasons {
			err = v.waiting(ctx, r, q.Namespace, a.Workflows, now)
		}
		if err == nil {
			a.Warnings, err = filterWarnings(ctx, r, q, types, a.Workflows)
		}
		return err
	})
	a.Count = len(a.Workflows)
	return a, err
}

// currentOf adds the runs of a page to a list. An open run is the current run of its workflow ID; for closed runs the
// rows of the workflow IDs are read, because a later run or chain of the ID may exist. The number of runs is not read:
// it is that of the run.
func currentOf(
	ctx context.Context, r store.Reader, namespace string, heads []engine.Head, a *protocol.ListResponse,
) error {
	var closed []string
	for i := range heads {
		if !heads[i].Status.Open() {
			closed = append(closed, heads[i].WorkflowID)
		}
	}
	slices.Sort(closed)
	current, err := r.CurrentRuns(ctx, namespace, slices.Compact(closed))
	if err != nil {
		return err
	}
	for i := range heads {
		v := runView(&heads[i])
		v.RunCount, v.Current = v.RunNumber, heads[i].Status.Open() || current[v.WorkflowID] == v.RunID
		a.Workflows = append(a.Workflows, v)
	}
	return nil
}

// runCount returns the number of runs of a run's chain. It reads only the row of the workflow ID, unless the run is not
// the current one of its workflow ID.
func runCount(ctx context.Context, r store.Reader, run *engine.Head, flow engine.Workflow) (int64, error) {
	if flow.RunID == run.ID || run.Status.Open() {
		return flow.Runs, nil
	}
	current, err := r.Step(ctx, flow.RunID, 0)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && current.Chain == run.Chain:
		return flow.Runs, nil
	case err != nil || run.ContinuedTo == "":
		return run.Number, err
	}
	heads, err := r.RunsOf(ctx, flow.Key())
	n := run.Number
	for i := range heads {
		if heads[i].Chain == run.Chain {
			n = max(n, heads[i].Number)
		}
	}
	return n, err
}

// ofKind restricts a query to workflow runs or activity runs. The requested type is then the name of a workflow or of
// an activity.
func ofKind(q *store.RunQuery, kind string) error {
	switch {
	// A type of workflows is never a type of activity runs.
	case kind == "" || kind == protocol.RunOfWorkflow && q.Type != "":
	case kind == protocol.RunOfActivity && q.Type != "":
		q.Type = store.TypeColumn(history.KindActivity, q.Type)
	case kind == protocol.RunOfActivity || kind == protocol.RunOfWorkflow:
		q.Where = append(q.Where, filter.OfActivities(kind == protocol.RunOfActivity))
	default:
		return protocol.Invalid("kind", "must be workflow or activity, not %q", kind)
	}
	return nil
}

// Runs lists the runs of a workflow id, newest first.
func (v *View) Runs(ctx context.Context, t protocol.Target) ([]protocol.RunView, error) {
	key := engine.WorkflowKey{Namespace: transaction.NamespaceOrDefault(t.Namespace), ID: t.WorkflowID}
	views := []protocol.RunView{}
	err := v.store.View(ctx, func(r store.Reader) error {
		flow, err := r.Workflow(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return transaction.WorkflowNotFound(t.WorkflowID)
		}
		if err != nil {
			return err
		}
		heads, err := r.RunsOf(ctx, key)
		last := map[string]int64{} // number of the newest run, by chain
		for i := range heads {
			last[heads[i].Chain] = max(last[heads[i].Chain], heads[i].Number)
		}
		current := currentRun(heads, flow.RunID)
		for i := range heads {
			v := runView(&heads[i])
			v.RunCount, v.Current = last[heads[i].Chain], i == current
			if heads[i].Chain == heads[current].Chain {
				v.RunCount = max(v.RunCount, flow.Runs)
			}
			views = append(views, v)
		}
		return err
	})
	return views, err
}

// currentRun returns the index of the current run of a workflow ID in its runs, oldest first. The runs are read after
// the row of the ID, which names run, so they may contain a newer one. An open run is the current run. If all runs have
// closed, it is the newest run of the chain of run: an import may have added runs of other chains.
func currentRun(heads []engine.Head, run string) int {
	current, found := len(heads)-1, false
	for i := range heads {
		switch {
		case heads[i].Status.Open():
			return i
		case heads[i].ID == run, found && heads[i].Chain == heads[current].Chain:
			current, found = i, true
		}
	}
	return current
}

// cursor is the opaque position after an item of a listing: the item's time and ID. Unlike an offset, it does not
// repeat items when new ones appear between two pages.
func cursor(at history.Time, id string) *string {
	c := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", at.Micros(), id))
	return &c
}

// parseCursor returns the time and ID of a cursor; both are zero without one.
func parseCursor(token string) (history.Time, string, error) {
	if token == "" {
		return history.Time{}, "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	at, id, ok := strings.Cut(string(raw), " ")
	var micros int64
	if err == nil && ok {
		_, err = fmt.Sscan(at, &micros)
	}
	if err != nil || !ok || id == "" {
		return history.Time{}, "", protocol.Refuse(protocol.ReasonInvalidPageToken, "invalid page token %q", token)
	}
	return history.Micros(micros), id, nil
}
