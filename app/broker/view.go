package broker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/filter"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Describe shows one run with all that is open in it, and why it waits. Without a run id it is the current run; without
// a workflow id the run id alone says which.
func (b *Broker) Describe(ctx context.Context, t protocol.Target) (protocol.RunView, error) {
	t.Namespace = change.Namespace(t.Namespace)
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.RunView{}, err
	}
	var v protocol.RunView
	err = b.store.View(ctx, func(r store.Reader) error {
		run, flow, err := find(ctx, r, t)
		if err != nil {
			return err
		}
		v = runView(&run.Head)
		v.RunCount, v.Current = flow.Runs, flow.RunID == run.ID
		first, err := r.Events(ctx, run.ID, 0, 1, 1, change.MaxPageSize)
		if err != nil {
			return err
		}
		if len(first) > 0 {
			if s, ok := first[0].Data.(*history.WorkflowStarted); ok && s.Arguments != "" {
				v.InputEnvelope, v.Input = envelope(s.Arguments)
			}
		}
		if run.Status.Open() {
			var wait *protocol.Wait
			if v.Pending, wait, err = b.pending(ctx, r, run, now); err != nil {
				return err
			}
			tellWait(&v, wait)
			v.Actions = &protocol.RunActions{
				Signal: run.HasCode(), Query: run.HasCode(), Update: run.HasCode(), Cancel: true, Terminate: true,
				Repair: v.Quarantined != nil,
			}
			return nil
		}
		v.Actions = &protocol.RunActions{Query: run.HasCode(), Archive: v.Current && run.ArchivedAt.IsZero()}
		return closing(ctx, r, run, &v)
	})
	return v, err
}

// find is the run a target means, with the row of its workflow id. They are two reads, and the run may go on as a new
// one between them: then both are read again, so that nobody is shown a run as its workflow's end that is not. What
// reads the same twice is so: of a chain that was imported from its beginning, the runs to come are missing.
func find(ctx context.Context, r store.Reader, t protocol.Target) (*engine.Run, engine.Workflow, error) {
	for before := ""; ; {
		run, flow, err := findOnce(ctx, r, t)
		if err != nil || run.ContinuedTo == "" || flow.RunID != run.ID || run.ID == before {
			return run, flow, err
		}
		before = run.ID
	}
}

func findOnce(ctx context.Context, r store.Reader, t protocol.Target) (*engine.Run, engine.Workflow, error) {
	var flow engine.Workflow
	id := t.RunID
	if t.WorkflowID != "" {
		f, err := r.Workflow(ctx, engine.WorkflowKey{Namespace: t.Namespace, ID: t.WorkflowID})
		if errors.Is(err, store.ErrNotFound) {
			return nil, flow, protocol.Refuse(protocol.ReasonInstanceNotFound, "there is no workflow %s", t.WorkflowID)
		}
		if err != nil {
			return nil, flow, err
		}
		flow = f
		if id == "" {
			id = f.RunID
		}
	}
	run, err := r.Run(ctx, id)
	if errors.Is(err, store.ErrNotFound) ||
		err == nil && (run.Namespace != t.Namespace || t.WorkflowID != "" && run.WorkflowID != t.WorkflowID) {
		return nil, flow, change.NoRun(id)
	}
	if err != nil {
		return nil, flow, err
	}
	if t.WorkflowID == "" {
		flow, err = r.Workflow(ctx, engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID})
	}
	return run, flow, err
}

// runView is what listings show of a run's row.
func runView(h *engine.Head) protocol.RunView {
	status, bucket, closed := h.Public()
	v := protocol.RunView{
		WorkflowID: h.WorkflowID, RunID: h.ID, Namespace: h.Namespace, Kind: kindOf(h), WorkflowType: h.Type,
		BusinessKey: orNil(h.BusinessKey),
		Status:      status, StatusBucket: bucket, Terminal: !h.Status.Open(), ClosedReason: orNil(closed),
		TaskQueue:     h.Queue,
		RunNumber:     h.Number,
		Compatibility: orNil(h.BuildID),
		PayloadCodec:  payload.Codec, ExecutionTimeout: orNoInt(h.ExecutionTimeout), RunTimeout: orNoInt(h.RunTimeout),
		ExecutionDeadline: h.ExecutionDeadline, RunDeadline: h.RunDeadline, StartedAt: h.StartedAt, ClosedAt: h.ClosedAt,
		LastProgressAt: h.ProgressAt, Memo: payload.Plain(h.Memo), SearchAttributes: h.SearchAttributes,
		HistoryLength: h.LastSeq, Error: orNil(h.Failure),
		ArchivedAt: h.ArchivedAt, ArchiveReason: h.ArchiveReason,
	}
	if h.Parent != nil {
		v.ParentWorkflowID, v.ParentRunID = &h.Parent.WorkflowID, &h.Parent.RunID
	}
	if h.Task != nil && h.Task.State == engine.Quarantined {
		v.Quarantined = &h.Task.Problem
	}
	return v
}

func orNoInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// envelope shows a blob both ways: as stored, and decoded.
func envelope(blob string) (*payload.Payload, json.RawMessage) {
	p := payload.Payload{Blob: blob}
	decoded, err := payload.ToJSON(p)
	if err != nil {
		return &p, nil
	}
	return &p, decoded
}

// closing adds how a closed run ended.
func closing(ctx context.Context, r store.Reader, run *engine.Run, v *protocol.RunView) error {
	e, err := r.LastEvent(ctx, run.ID)
	if err != nil {
		return err
	}
	switch d := e.Data.(type) {
	case *history.WorkflowCompleted:
		if d.Output != "" {
			v.OutputEnvelope, v.Output = envelope(d.Output)
		}
	case *history.WorkflowFailed:
		v.Failure, err = json.Marshal(d)
	case *history.WorkflowCancelled:
		v.Failure, err = json.Marshal(d)
	case *history.WorkflowTerminated:
		v.Failure, err = json.Marshal(d)
	case *history.WorkflowTimedOut:
		v.Reason = d.TimeoutKind
		v.Failure, err = json.Marshal(d)
	}
	return err
}

// What no index bounds is searched for as long as this: a caller who takes a part gets it at once, the others wait for
// the whole.
const (
	partialSearch = 80 * time.Millisecond
	wholeSearch   = 2 * time.Second
)

// List pages through runs.
func (b *Broker) List(ctx context.Context, in protocol.ListRequest) (protocol.ListAnswer, error) {
	q := store.RunQuery{
		Namespace: change.Namespace(in.Namespace), Type: in.WorkflowType, Text: in.Query,
		Limit: view.PageSize(in.PageSize, 50, 200) + 1, Budget: wholeSearch,
	}
	if in.Partial {
		q.Budget = partialSearch
	}
	var types map[string]string
	var err error
	if filter.Is(in.Query) {
		if types, err = b.attributeTypes(ctx, q.Namespace); err != nil {
			return protocol.ListAnswer{}, err
		}
		if q.Where, err = filter.Parse(in.Query, types); err != nil {
			return protocol.ListAnswer{}, err
		}
		q.Text = ""
	}
	if q.Statuses, err = filter.Statuses(in.Status); err != nil {
		return protocol.ListAnswer{}, err
	}
	if q.AfterStart, q.AfterRun, err = parseCursor(in.PageToken); err != nil {
		return protocol.ListAnswer{}, err
	}
	var now time.Time
	if in.WaitReasons {
		if now, err = b.store.Now(ctx); err != nil {
			return protocol.ListAnswer{}, err
		}
	}
	a := protocol.ListAnswer{Workflows: []protocol.RunView{}}
	err = b.store.View(ctx, func(r store.Reader) error {
		list, err := r.Runs(ctx, q)
		if err != nil {
			return err
		}
		heads := list.Heads
		if to := list.SearchedTo; to.Run != "" {
			if !in.Partial {
				return protocol.Refuse(
					protocol.ReasonQueryTooBroad, "no index finds these runs, and those since %s alone took %s to look through: "+
						"add a condition on StartTime, or ask for partial pages", to.Start, wholeSearch,
				)
			}
			a.SearchedTo, a.NextPageToken = &to.Start, cursor(to.Start, to.Run)
		}
		if len(heads) == q.Limit {
			heads = heads[:q.Limit-1]
			last := heads[len(heads)-1]
			a.NextPageToken = cursor(last.StartedAt, last.ID)
		}
		for i := range heads {
			v := runView(&heads[i])
			// A listing does not read the workflow's own row: a run that no other went on from is its current one, and its last.
			v.RunCount, v.Current = v.RunNumber, heads[i].ContinuedTo == ""
			a.Workflows = append(a.Workflows, v)
		}
		if err == nil && in.WaitReasons {
			err = b.waiting(ctx, r, q.Namespace, a.Workflows, now)
		}
		if err == nil {
			a.Warnings, err = filterWarnings(ctx, r, q, types, a.Workflows)
		}
		return err
	})
	a.Count = len(a.Workflows)
	return a, err
}

// Runs lists the runs of a workflow id, newest first.
func (b *Broker) Runs(ctx context.Context, t protocol.Target) ([]protocol.RunView, error) {
	key := engine.WorkflowKey{Namespace: change.Namespace(t.Namespace), ID: t.WorkflowID}
	views := []protocol.RunView{}
	err := b.store.View(ctx, func(r store.Reader) error {
		flow, err := r.Workflow(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return protocol.Refuse(protocol.ReasonInstanceNotFound, "there is no workflow %s", t.WorkflowID)
		}
		if err != nil {
			return err
		}
		heads, err := r.RunsOf(ctx, key)
		for i := range heads {
			v := runView(&heads[i])
			// The runs are one read, made after that of the workflow: they know of a run that went on in between.
			v.RunCount, v.Current = max(flow.Runs, heads[len(heads)-1].Number), heads[i].ContinuedTo == ""
			views = append(views, v)
		}
		return err
	})
	return views, err
}

// maxHistoryWait is how long a history request waits for a new event.
const maxHistoryWait = 30 * time.Second

// History reads a page of a run's history; with Wait it is held until there is an event after the token, and its answer
// carries the next token for as long as the run is open.
func (b *Broker) History(ctx context.Context, in protocol.HistoryQuery) (protocol.HistoryPage, error) {
	in.Namespace = change.Namespace(in.Namespace)
	after, err := change.ParsePage(in.PageToken)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	var run *engine.Run
	look := func() (protocol.HistoryPage, error) {
		err := b.store.View(ctx, func(r store.Reader) error {
			run, _, err = find(ctx, r, in.Target)
			return err
		})
		if err != nil {
			return protocol.HistoryPage{}, err
		}
		size := view.PageSize(in.PageSize, change.MaxPage, change.MaxPage)
		p, err := change.Page(ctx, b.store, run.ID, after, run.LastSeq, size)
		if in.Wait && p.NextPageToken == nil && run.Status.Open() {
			p.NextPageToken = change.PageToken(run.LastSeq) // there will be more: this is where to wait for it
		}
		return p, err
	}
	p, err := look()
	if err != nil || !in.Wait || len(p.Events) > 0 || !run.Status.Open() {
		return p, err
	}
	changed, stop := b.dispatch.WatchRun(run.ID)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, maxHistoryWait)
	defer cancel()
	for {
		if p, err = look(); err != nil || len(p.Events) > 0 || !run.Status.Open() {
			return p, err
		}
		select {
		case <-changed:
			continue
		case <-b.drained:
		case <-ctx.Done():
		}
		return p, nil
	}
}

// cursor is the opaque position behind an item of a listing: its time and id.
func cursor(at history.Time, id string) *string {
	c := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", at.Micros(), id))
	return &c
}

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
		return history.Time{}, "", protocol.Refuse(protocol.ReasonInvalidPageToken, "%q is no page token", token)
	}
	return history.Micros(micros), id, nil
}
