package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

const framing = "single-object" // C3 01, the fingerprint of the schema, the datum

// gathered is what an export lists beside the events of a run.
type gathered struct {
	Commands   []object `json:"commands"` // what came from outside, in order
	Signals    []object `json:"signals"`
	Updates    []object `json:"updates"`
	Activities []object `json:"activities"`
	Timers     []object `json:"timers"`
	Failures   []object `json:"failures"`

	run   string
	known map[string]object // by the id an event names: the entry it is about
	blobs []object
}

func newGathered(run string) gathered {
	return gathered{
		Commands: []object{}, Signals: []object{}, Updates: []object{}, Activities: []object{}, Timers: []object{}, Failures: []object{},
		run: run, known: map[string]object{}, blobs: []object{},
	}
}

// gather notes what an event says. The answer is the id of the command that made it, when one did.
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
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	g.blobsIn(e, body)
	id := fmt.Sprintf("%s-%d", g.run, e.Seq)
	outside := func(kind string) {
		command = id
		g.Commands = append(g.Commands, object{"id": id, "type": kind, "status": "accepted", "recorded_at": e.At, "history_sequence": e.Seq})
	}
	open := func(list *[]object, key string, entry object) {
		entry["opened_at"], entry["history_sequence"] = e.At, e.Seq
		if _, again := g.known[key]; !again {
			g.known[key] = entry
			*list = append(*list, entry)
		}
	}
	end := func(key, status string) {
		if entry := g.known[key]; entry != nil {
			entry["status"], entry["closed_at"] = status, e.At
		}
	}
	switch d := e.Data.(type) {
	case *history.SignalReceived:
		outside("signal")
		g.Signals = append(g.Signals, object{"id": id, "signal_name": p.SignalName, "received_at": e.At, "history_sequence": e.Seq})
	case *history.UpdateAccepted:
		outside("update")
		open(&g.Updates, p.UpdateID, object{"id": p.UpdateID, "update_name": p.UpdateName, "status": "accepted"})
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
		open(&g.Activities, p.ExecutionID, object{"id": p.ExecutionID, "activity_type": p.Activity, "sequence": p.Sequence, "status": "open"})
	case *history.ActivityCompleted:
		end(p.ExecutionID, "completed")
	case *history.ActivityFailed:
		end(p.ExecutionID, "failed")
	case *history.ActivityTimedOut:
		end(p.ExecutionID, "timed_out")
	case *history.ActivityCancelled:
		end(p.ExecutionID, "cancelled")
	case *history.TimerScheduled:
		open(&g.Timers, p.TimerID, object{"id": p.TimerID, "sequence": p.Sequence, "delay_seconds": p.Delay, "status": "open"})
	case *history.TimerFired:
		end(p.TimerID, "fired")
	case *history.TimerCancelled:
		end(p.TimerID, "cancelled")
	}
	if strings.HasSuffix(e.Type(), "Failed") || strings.HasSuffix(e.Type(), "TimedOut") {
		g.Failures = append(g.Failures, object{
			"id": p.ID, "source": e.Type(), "message": p.Message, "exception_class": p.ExceptionCls, "recorded_at": e.At, "history_sequence": e.Seq,
		})
	}
	return command
}

// blobsIn lists the payloads an event carries.
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
		g.blobs = append(g.blobs, object{
			"path": fmt.Sprintf("history_events.%d.payload.%s", e.Seq-1, name), "codec": payload.Codec, "avro_framing": framing,
			"available": true, "redacted": false, "diagnostic": nil,
		})
	}
}

type link struct {
	kind string // parents, children
	what object
}

// links are the other runs an event speaks of.
func links(e history.Event) []link {
	switch d := e.Data.(type) {
	case *history.WorkflowStarted:
		if d.ParentRunID != "" {
			return []link{{"parents", object{"type": "child_workflow", "workflow_id": d.ParentWorkflowID, "run_id": d.ParentRunID}}}
		}
		if d.ContinuedFrom != "" {
			return []link{{"parents", object{"type": "continue_as_new", "workflow_id": d.WorkflowID, "run_id": d.ContinuedFrom}}}
		}
	case *history.ChildRunStarted:
		return []link{{"children", object{"type": "child_workflow", "workflow_id": d.WorkflowID, "run_id": d.RunID}}}
	case *history.WorkflowContinuedAsNew:
		return []link{{"children", object{"type": "continue_as_new", "run_id": d.NewRunID}}}
	}
	return nil
}
