package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
)

// TraceLinksSchema is the schema of [TraceLinks].
const TraceLinksSchema = "durable-workflow.trace-links"

// Limits of the trace links of a task.
const (
	MaxTraceLinks     = 32
	MaxTraceLinkBytes = 4096 // of their JSON, with / counted as two bytes
)

// TraceLinks are the trace contexts of the requests whose events a workflow task contains for the first time. They are
// valid for this task only.
type TraceLinks struct {
	Schema    string      `json:"schema"`  // always durable-workflow.trace-links
	Version   int         `json:"version"` // always 1
	TaskID    string      `json:"task_id"`
	RunID     string      `json:"run_id"`
	Namespace string      `json:"namespace"`
	Links     []TraceLink `json:"links" maxItems:"32"`
}

// TraceLink is the trace context of one request.
type TraceLink struct {
	Kind      string               `json:"kind"`       // always command
	CommandID string               `json:"command_id"` // ID of the signal, the update or the cancellation
	Context   history.TraceContext `json:"context"`    // without baggage
}

// LinksOf returns the trace links of a workflow task that contains these events for the first time; nil: none of their
// requests had a trace context. The links after the first that exceeds a limit are omitted.
func LinksOf(taskID, runID, namespace string, events []history.Event) *TraceLinks {
	var all *TraceLinks
	size, full := 0, false
	add := func(id string, trace history.TraceContext) {
		if full || trace.IsZero() || id == "" {
			return
		}
		if all == nil {
			all = &TraceLinks{
				Schema: TraceLinksSchema, Version: 1, TaskID: taskID, RunID: runID, Namespace: namespace, Links: []TraceLink{},
			}
			size = linkBytes(all)
		}
		link := TraceLink{Kind: "command", CommandID: id, Context: trace.WithoutBaggage()}
		size += linkBytes(link) + len(",")
		if full = size > MaxTraceLinkBytes || len(all.Links) == MaxTraceLinks; !full {
			all.Links = append(all.Links, link)
		}
	}
	for i := range events {
		switch d := events[i].Data.(type) {
		case *history.SignalReceived:
			add(d.SignalID, d.Trace)
		case *history.UpdateAccepted:
			add(d.UpdateID, d.Trace)
		case *history.WorkflowCancellationRequested:
			add(fmt.Sprintf("%s-c%d", runID, events[i].Seq), d.Trace)
		}
	}
	if all != nil && len(all.Links) == 0 {
		return nil
	}
	return all
}

// linkBytes returns the size by which published clients limit the links.
func linkBytes(v any) (n int) {
	raw, err := json.Marshal(v)
	if err != nil {
		return MaxTraceLinkBytes + 1
	}
	for _, c := range raw {
		if n++; c == '/' {
			n++
		}
	}
	return n
}
