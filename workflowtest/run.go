package workflowtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is a workflow that a test has started. All goroutines of the test may use it.
type Workflow struct {
	ID    string // workflow ID
	RunID string // ID of the first run
	env   *Env
}

// StartOptions are the options of StartWith. The zero value starts the workflow as Start does. Durations are rounded up
// to whole seconds.
type StartOptions struct {
	WorkflowID       string            // empty: a new ULID
	Memo             map[string]any    // initial memo
	SearchAttributes map[string]any    // initial search attributes
	Headers          map[string]string // see workflow.Headers
	Delay            time.Duration     // delay before the first workflow task
	ExecutionTimeout time.Duration     // maximum time of all runs together
	RunTimeout       time.Duration     // maximum time of one run
}

func (o StartOptions) request() (in protocol.StartRequest, err error) {
	seconds := func(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
	in = protocol.StartRequest{
		WorkflowID: o.WorkflowID, TaskQueue: queue, StartDelay: seconds(o.Delay),
		ExecutionTimeout: seconds(o.ExecutionTimeout), RunTimeout: seconds(o.RunTimeout), Headers: o.Headers,
	}
	if len(o.Memo) > 0 {
		if in.Memo, err = json.Marshal(o.Memo); err != nil {
			return in, fmt.Errorf("memo: %w", err)
		}
	}
	if len(o.SearchAttributes) > 0 {
		if in.SearchAttributes, err = json.Marshal(o.SearchAttributes); err != nil {
			return in, fmt.Errorf("search attributes: %w", err)
		}
	}
	return in, nil
}

// Start starts a workflow, by its registered name or the registered function.
func (e *Env) Start(nameOrFunc any, args ...any) *Workflow {
	e.t.Helper()
	return e.StartWith(StartOptions{}, nameOrFunc, args...)
}

// StartWith starts a workflow with options.
func (e *Env) StartWith(o StartOptions, nameOrFunc any, args ...any) *Workflow {
	e.t.Helper()
	name := reflect.ValueOf(nameOrFunc).String()
	if reflect.ValueOf(nameOrFunc).Kind() != reflect.String { // neither a string nor a workflow.Name
		var err error
		if name, err = e.registry.WorkflowName(nameOrFunc); err != nil {
			e.t.Fatal(err)
		}
	}
	in, err := o.request()
	if err != nil {
		e.t.Fatalf("start %s: %v", name, err)
	}
	in.WorkflowType, in.Input = name, e.encode(args)
	a, err := e.server.Broker().Start(e.t.Context(), in)
	if err != nil {
		e.t.Fatalf("start %s: %v", name, err)
	}
	return &Workflow{ID: a.WorkflowID, RunID: a.RunID, env: e}
}

// encode encodes an argument list as in a request.
func (e *Env) encode(args []any) json.RawMessage {
	e.t.Helper()
	chain := e.codecs()
	p, err := chain.NewArgs(args...)
	if err == nil {
		p, err = chain.EncodeArgs(p)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		e.t.Fatal(err)
	}
	return raw
}

func (e *Env) codecs() codecs.Chain { return codecs.Of(e.registry.Codecs()) }

func (w *Workflow) target() protocol.Target { return protocol.Target{WorkflowID: w.ID} }

// Signal sends a signal.
func (w *Workflow) Signal(name string, args ...any) {
	t := w.env.t
	t.Helper()
	if _, err := w.env.server.Broker().Signal(t.Context(), protocol.SignalRequest{
		Target: w.target(), SignalName: name, Input: w.env.encode(args),
	}); err != nil {
		t.Fatalf("signal %s: %v", name, err)
	}
}

// RequestCancellation cancels the root context of the workflow, which may clean up before it closes.
func (w *Workflow) RequestCancellation() {
	t := w.env.t
	t.Helper()
	if _, err := w.env.server.Broker().RequestCancellation(t.Context(), protocol.EndRequest{
		Target: w.target(),
	}); err != nil {
		t.Fatalf("request the cancellation of %s: %v", w.ID, err)
	}
}

// Update sends an update and waits for its result without a timeout. The error is a *Failure if the update handler or
// the validator returned it; any other error is the reason why the update was not accepted.
func Update[T any](w *Workflow, name string, args ...any) (result T, err error) {
	w.env.t.Helper()
	b, ctx, still := w.env.server.Broker(), w.env.ctx, stillness{}
	in := protocol.UpdateRequest{
		Target: w.target(), UpdateName: name, Input: w.env.encode(args), WaitFor: protocol.WaitCompleted,
		RequestID: w.env.id(),
	}
	for {
		a, err := b.Update(ctx, in) // the app recognizes the repeated request and continues to wait
		var refused *protocol.Error
		w.env.check()
		switch {
		case errors.As(err, &refused) && refused.Reason == protocol.ReasonUpdateRejected:
			f, _ := refused.Details["failure"].(*protocol.Failure)
			return result, w.env.rejected(refused, f)
		case err != nil:
			return result, err
		case a.Failure != nil:
			f := w.env.failure("failed", *a.Failure)
			if f.Type == workflow.TypeUpdateRejected {
				f.Status = "rejected"
			}
			return result, f
		case a.WaitTimedOut:
			w.env.failIfIdle(&still, "update "+name)
			continue
		}
		return result, w.env.decode(a.ResultEnvelope, &result)
	}
}

// Query sends a query to the workflow.
func Query[T any](w *Workflow, name string, args ...any) (result T, err error) {
	w.env.t.Helper()
	a, err := w.env.server.Broker().Query(
		w.env.ctx, protocol.QueryRequest{Target: w.target(), QueryName: name, Input: w.env.encode(args)},
	)
	if err != nil {
		return result, err
	}
	return result, w.env.decode(a.ResultEnvelope, &result)
}

// decode decodes a result into out. Without a result it does nothing.
func (e *Env) decode(p *payload.Payload, out any) error {
	if p == nil {
		return nil
	}
	decoded, err := e.codecs().DecodeValue(*p)
	if err != nil {
		return err
	}
	return payload.Decode(decoded, out)
}

// decodedEvents returns events with decoded payloads.
func (e *Env) decodedEvents(events []history.Event) []history.Event {
	e.t.Helper()
	decoded, err := e.codecs().DecodeEvents(events)
	if err != nil {
		e.t.Fatal(err)
	}
	return decoded
}

// Result waits without a timeout for the workflow to close, through all runs that continue as new, and returns its
// result. The error is a *Failure.
func Result[T any](w *Workflow) (result T, err error) {
	w.env.t.Helper()
	switch d := w.env.decodedEvents([]history.Event{w.last()})[0].Data.(type) {
	case *history.WorkflowCompleted:
		err = payload.Decode(payload.Payload{Blob: d.Output}, &result)
	case *history.WorkflowFailed:
		err = w.env.failure("failed", d.Failure)
	case *history.WorkflowCancelled:
		err = w.env.failure("cancelled", d.Failure)
	case *history.WorkflowTerminated:
		err = w.env.failure("terminated", d.Failure)
	case *history.WorkflowTimedOut:
		err = w.env.failure("timed_out", d.Failure)
	}
	return result, err
}

// last waits for the event that closes the workflow.
func (w *Workflow) last() history.Event {
	w.env.t.Helper()
	still := stillness{}
	ticker := time.NewTicker(time.Hour) // an hour of virtual time
	defer ticker.Stop()
	for run := w.RunID; ; {
		w.env.check()
		changed, stop := w.env.server.Dispatch().WatchRun(run)
		events := w.env.events(run)
		last := events[len(events)-1]
		switch d := last.Data.(type) {
		case *history.WorkflowContinuedAsNew:
			stop()
			run = d.NewRunID
			continue
		case *history.WorkflowCompleted, *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated,
			*history.WorkflowTimedOut:
			stop()
			return last
		}
		select {
		case <-changed:
		case <-ticker.C:
			w.env.failIfIdle(&still, "the result of workflow "+w.ID)
		case <-w.env.ctx.Done():
		}
		stop()
	}
}

// History returns the events so far of the workflow's first run.
func (w *Workflow) History() (all []client.Event) {
	w.env.t.Helper()
	for _, e := range w.env.decodedEvents(w.env.events(w.RunID)) {
		attributes, err := history.EncodeData(e.Data)
		if err != nil {
			w.env.t.Fatalf("history of run %s: %v", w.RunID, err)
		}
		all = append(all, client.Event{Sequence: e.Seq, Type: e.Type(), Time: e.At.Time, Attributes: attributes})
	}
	return all
}

func (e *Env) events(run string) (all []history.Event) {
	e.t.Helper()
	q := protocol.HistoryQuery{Target: protocol.Target{RunID: run}, PageSize: 1000}
	for {
		page, err := e.server.View().History(e.t.Context(), q)
		if err != nil {
			e.t.Fatalf("history of run %s: %v", run, err)
		}
		all = append(all, page.Events...)
		if page.NextPageToken == nil {
			return all
		}
		q.PageToken = *page.NextPageToken
	}
}

// replays is how often each history is replayed. Code that depends on the iteration order of a map with two entries
// passes one replay with a probability of one half.
const replays = 16

// histories returns the histories of all runs: runs that the test started, their children, and continued runs.
func (e *Env) histories() (all [][]history.Event) {
	e.t.Helper()
	for _, v := range e.runs(protocol.ListRequest{}) {
		all = append(all, e.events(v.RunID))
	}
	return all
}

// replay replays the histories and fails the test if the code issues other commands.
func (e *Env) replay(histories [][]history.Event) {
	e.t.Helper()
	for _, events := range histories {
		first, ok := events[0].Data.(*history.WorkflowStarted)
		if !ok {
			e.t.Fatalf("a run begins with %s", events[0].Type())
		}
		def, ok := e.registry.FindWorkflow(first.WorkflowType)
		if !ok {
			continue
		}
		for range replays {
			if err := replay.Events(def, replay.Options{
				Names: e.registry, CompareArguments: true, OnBranchRun: e.watch.registerRun, Codecs: e.codecs(),
			}, events); err != nil {
				e.t.Errorf("%s, replayed: %s", first.WorkflowType, replay.TaskFailure(err).Message)
				break
			}
		}
	}
}

// Failure is the error of a workflow or an update that has no result.
type Failure struct {
	// failed, cancelled, terminated or timed_out for a workflow; failed or rejected (by its validator) for an update
	Status  string
	Type    string // type of the error
	Message string
	details payload.Payload
}

// Error returns the status and the message.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Status, f.Message) }

// Is implements errors.Is for ErrCancelled, ErrTerminated and ErrTimedOut of package workflow.
func (f *Failure) Is(target error) bool {
	switch target {
	case workflow.ErrCancelled:
		return f.Status == "cancelled" || f.Type == activity.TypeCancelled
	case workflow.ErrTerminated:
		return f.Status == "terminated"
	case workflow.ErrTimedOut:
		return f.Status == "timed_out"
	}
	return false
}

// DecodeDetails decodes the details that activity.Details attached to the error. Without details it does not change
// out.
func (f *Failure) DecodeDetails(out any) error {
	if f.details.IsZero() {
		return nil
	}
	return payload.Decode(f.details, out)
}

// failure returns the error of a failure, with decoded details.
func (e *Env) failure(status string, f history.Failure) *Failure {
	e.t.Helper()
	exception, err := e.codecs().DecodeException(f.Exception)
	if err != nil {
		e.t.Fatal(err)
	}
	f.Exception = exception
	out := &Failure{Status: status, Type: f.ExceptionType, Message: f.Message}
	var ex struct {
		Type    string          `json:"type"`
		Details payload.Payload `json:"details"`
	}
	if len(f.Exception) > 0 && json.Unmarshal(f.Exception, &ex) == nil {
		out.Type, out.details = cmp.Or(out.Type, ex.Type), ex.Details
	}
	return out
}

// rejected returns the error of an update that its validator rejected.
func (e *Env) rejected(refused *protocol.Error, f *protocol.Failure) *Failure {
	out := &Failure{Status: "rejected", Type: workflow.TypeUpdateRejected, Message: refused.Message}
	if f != nil {
		out.Type, out.Message = cmp.Or(f.Type, out.Type), f.Message
		if len(f.Details) > 0 {
			_ = json.Unmarshal(f.Details, &out.details) // ignore details with an unknown structure
			if details, err := e.codecs().DecodeValue(out.details); err == nil {
				out.details = details
			}
		}
	}
	return out
}
