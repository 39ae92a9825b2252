package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
)

func TestTraceLinksStayWithinTheirLimits(t *testing.T) {
	events := func(n int, state string) (list []history.Event) {
		for i := range n {
			d := &history.SignalReceived{SignalID: fmt.Sprint("s", i+1)}
			d.Trace = history.TraceContext{Schema: history.TraceContextSchema, Version: 1}
			d.Trace.Carrier = history.TraceCarrier{Traceparent: "00-1-1-01", Tracestate: state, Baggage: "k=v"}
			list = append(list, history.Event{Seq: int64(i + 1), Data: d})
		}
		return list
	}
	if got := LinksOf("t", "r", "n", []history.Event{{Data: &history.SignalReceived{SignalID: "s"}}}); got != nil {
		t.Errorf("links without a trace context: %+v", got)
	}
	context := events(1, "")[0].Data.(*history.SignalReceived).Trace
	kinds := LinksOf("t", "r", "n", []history.Event{
		{Seq: 4, Data: &history.UpdateAccepted{UpdateID: "u4", Trace: context}},
		{Seq: 5, Data: &history.WorkflowCancellationRequested{Trace: context}},
		{Seq: 6, Data: &history.WorkflowStarted{Trace: context}},
	})
	if len(kinds.Links) != 2 || kinds.Links[0].CommandID != "u4" || kinds.Links[1].CommandID != "r-c5" {
		t.Errorf("links of an update and a cancellation: %+v", kinds)
	}
	few := LinksOf("t", "r", "n", events(3, ""))
	if len(few.Links) != 3 || few.Links[2].CommandID != "s3" || few.Links[2].Context.Carrier.Baggage != "" {
		t.Errorf("links: %+v", few)
	}
	for _, state := range []string{"", strings.Repeat("/", 100), strings.Repeat("v", 512)} {
		got := LinksOf("t", "r", "n", events(100, state))
		if n := len(got.Links); n == 0 || n > MaxTraceLinks || linkBytes(got) > MaxTraceLinkBytes {
			t.Errorf("with a tracestate of %d bytes: %d links of %d bytes", len(state), n, linkBytes(got))
		}
	}
	// Events after the first link that exceeds the limit cost nothing.
	allocations := func(n int) float64 {
		list := events(n, "")
		return testing.AllocsPerRun(10, func() { LinksOf("t", "r", "n", list) })
	}
	if few, many := allocations(50), allocations(3000); many > 2*few {
		t.Errorf("%v allocations for the links of 3000 events, %v for 50", many, few)
	}
}
