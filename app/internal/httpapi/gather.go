package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Tools that read an export need lists of activities, timers and failures. The lists are derived from one pass over the
// events in order, as in a replay.

// framing names the header of each value in a blob, as bundles do.
const framing = "single-object" // C3 01, the fingerprint of the schema, the datum

// gathered holds the lists of an export besides the events of a run.
type gathered struct {
	Commands   []bundledCommand   `json:"commands"` // requests of clients to the run, in order
	Signals    []bundledSignal    `json:"signals"`
	Updates    []*bundledUpdate   `json:"updates"`
	Activities []*bundledActivity `json:"activities"`
	Timers     []*bundledTimer    `json:"timers"`
	Failures   []bundledFailure   `json:"failures"`

	run   string
	known map[string]*bundledSpan // entries by the ID in the events
	blobs []bundledBlob
}

type bundledCommand struct {
	ID     string       `json:"id"`
	Type   string       `json:"type"`
	Status string       `json:"status" enum:"accepted"`
	At     history.Time `json:"recorded_at"`
	Seq    int64        `json:"history_sequence"`
}

type bundledSignal struct {
	ID   string       `json:"id"`
	Name string       `json:"signal_name"`
	At   history.Time `json:"received_at"`
	Seq  int64        `json:"history_sequence"`
}

// bundledSpan describes something that one event starts and a later event may end.
type bundledSpan struct {
	ID       string       `json:"id"`
	Status   string       `json:"status"`
	OpenedAt history.Time `json:"opened_at"`
	ClosedAt history.Time `json:"closed_at,omitzero"`
	Seq      int64        `json:"history_sequence"` // number of the event that started it
}

type bundledUpdate struct {
	bundledSpan
	Name string `json:"update_name"`
}

type bundledActivity struct {
	bundledSpan
	Type     string `json:"activity_type"`
	Sequence int64  `json:"sequence"` // number of the command
}

type bundledTimer struct {
	bundledSpan
	Sequence int64 `json:"sequence"` // number of the command
	Delay    int64 `json:"delay_seconds"`
}

type bundledFailure struct {
	ID      string       `json:"id"`
	Source  string       `json:"source"` // type of the event
	Message string       `json:"message"`
	Class   string       `json:"exception_class"`
	At      history.Time `json:"recorded_at"`
	Seq     int64        `json:"history_sequence"`
}

// bundledBlob contains the position of an encoded value in the document.
type bundledBlob struct {
	Path       string  `json:"path"`
	Codec      string  `json:"codec"`
	Framing    string  `json:"avro_framing"`
	Available  bool    `json:"available"`
	Redacted   bool    `json:"redacted"`
	Diagnostic *string `json:"diagnostic"`
}

func newGathered(run string) gathered {
	return gathered{
		Commands: []bundledCommand{}, Signals: []bundledSignal{}, Updates: []*bundledUpdate{},
		Activities: []*bundledActivity{},
		Timers:     []*bundledTimer{}, Failures: []bundledFailure{}, run: run, known: map[string]*bundledSpan{},
		blobs: []bundledBlob{},
	}
}

// gather processes an event. It returns the ID of the command that caused the event, if any.
func (g *gathered) gather(e history.Event, body json.RawMessage) (command string) {
	var p struct {
		history.Failure
		Sequence    int64  `json:"sequence"`
		ExecutionID string `json:"activity_execution_id"`
		Activity    string `json:"activity_type"`
		TimerID     string `json:"timer_id"`
		Delay       int64  `json:"delay_seconds"`
		SignalName  string `json:"signal_name"`
		UpdateID    string `json:"update_id"`
		UpdateName  string `json:"update_name"`
	}
	if json.Unmarshal(body, &p) != nil { // for example an event of a later release: it is exported but not listed
		return ""
	}
	g.blobsIn(e, body)
	id := fmt.Sprintf("%s-%d", g.run, e.Seq)
	outside := func(kind string) {
		command = id
		g.Commands = append(g.Commands, bundledCommand{id, kind, "accepted", e.At, e.Seq})
	}
	span := func(id, status string) bundledSpan {
		return bundledSpan{ID: id, Status: status, OpenedAt: e.At, Seq: e.Seq}
	}
	end := func(id, status string) {
		if entry := g.known[id]; entry != nil {
			entry.Status, entry.ClosedAt = status, e.At
		}
	}
	switch d := e.Data.(type) {
	case *history.SignalReceived:
		outside("signal")
		g.Signals = append(g.Signals, bundledSignal{id, p.SignalName, e.At, e.Seq})
	case *history.UpdateAccepted:
		outside("update")
		u := &bundledUpdate{span(p.UpdateID, "accepted"), p.UpdateName}
		if g.openEntry(&u.bundledSpan) {
			g.Updates = append(g.Updates, u)
		}
	case *history.UpdateCompleted:
		status := "completed"
		if d.Failed {
			status = "failed"
		}
		end(p.UpdateID, status)
	case *history.CancelRequested:
		outside("cancel")
	case *history.TerminateRequested:
		outside("terminate")
	case *history.WorkflowCancellationRequested:
		outside("request_cancellation")
	case *history.RepairRequested:
		outside("repair")
	case *history.ActivityScheduled:
		a := &bundledActivity{span(p.ExecutionID, "open"), p.Activity, p.Sequence}
		if g.openEntry(&a.bundledSpan) {
			g.Activities = append(g.Activities, a)
		}
	case *history.ActivityCompleted:
		end(p.ExecutionID, "completed")
	case *history.ActivityFailed:
		end(p.ExecutionID, "failed")
	case *history.ActivityTimedOut:
		end(p.ExecutionID, "timed_out")
	case *history.ActivityCancelled:
		end(p.ExecutionID, "cancelled")
	case *history.TimerScheduled:
		t := &bundledTimer{span(p.TimerID, "open"), p.Sequence, p.Delay}
		if g.openEntry(&t.bundledSpan) {
			g.Timers = append(g.Timers, t)
		}
	case *history.TimerFired:
		end(p.TimerID, "fired")
	case *history.TimerCancelled:
		end(p.TimerID, "cancelled")
	}
	if strings.HasSuffix(e.Type(), "Failed") || strings.HasSuffix(e.Type(), "TimedOut") {
		g.Failures = append(g.Failures, bundledFailure{p.ID, e.Type(), p.Message, p.ExceptionCls, e.At, e.Seq})
	}
	return command
}

// openEntry records an entry that a later event may end. It ignores a second start of the same ID.
func (g *gathered) openEntry(entry *bundledSpan) bool {
	if g.known[entry.ID] != nil {
		return false
	}
	g.known[entry.ID] = entry
	return true
}

// blobsIn lists the payloads in an event.
func (g *gathered) blobsIn(e history.Event, body json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return
	}
	for _, name := range []string{"arguments", "result", "output", "value", "entries", "merged"} {
		var p payload.Payload
		if raw, there := members[name]; !there || json.Unmarshal(raw, &p) != nil || p.IsZero() {
			continue
		}
		g.blobs = append(g.blobs, bundledBlob{
			Path: fmt.Sprintf("history_events.%d.payload.%s", e.Seq-1, name), Codec: payload.Codec, Framing: framing,
			Available: true,
		})
	}
}

// bundledLinks are the other runs that the events refer to.
type bundledLinks struct {
	Parents  []bundledLink `json:"parents"`
	Children []bundledLink `json:"children"`
}

type bundledLink struct {
	Type       string `json:"type" enum:"child_workflow,continue_as_new"`
	WorkflowID string `json:"workflow_id,omitempty"`
	RunID      string `json:"run_id"`
}

// add records the run that an event names, if any.
func (l *bundledLinks) add(e history.Event) {
	switch d := e.Data.(type) {
	case *history.WorkflowStarted:
		if d.ParentRunID != "" {
			l.Parents = append(l.Parents, bundledLink{"child_workflow", d.ParentWorkflowID, d.ParentRunID})
		} else if d.ContinuedFrom != "" && d.CopiedFrom == nil {
			l.Parents = append(l.Parents, bundledLink{"continue_as_new", d.WorkflowID, d.ContinuedFrom})
		}
	case *history.ChildRunStarted:
		l.Children = append(l.Children, bundledLink{"child_workflow", d.WorkflowID, d.RunID})
	case *history.WorkflowContinuedAsNew:
		l.Children = append(l.Children, bundledLink{Type: "continue_as_new", RunID: d.NewRunID})
	}
}
