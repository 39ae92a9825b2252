package protocol_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func jobs() []protocol.Job {
	at := history.Micros(1_700_000_000_000_001)
	return []protocol.Job{
		{
			ID: "r-1-workflow", Kind: protocol.KindWorkflow, Queue: "a \"q\"", Token: "w1.me", LockExpiresAt: at, Release: "1.0",
			Task: protocol.Task{
				Kind: protocol.KindWorkflow, Workflow: &protocol.WorkflowTask{TaskID: "r-1-workflow", Events: []history.Event{
					{Seq: 1, At: at, Data: &history.WorkflowStarted{WorkflowType: "<é>", Arguments: "AAAA"}},
					{
						Seq: 2, At: at, Data: &history.ActivityScheduled{Sequence: 1, ActivityType: "echo"}, TaskID: "r-0-workflow",
						SeenThrough: 1,
					},
					{Seq: 3, At: at, Data: &history.Unknown{Name: "Later", Raw: json.RawMessage(`{}`)}},
				}},
			},
		},
		{ID: "r-1", Kind: protocol.KindActivity, Session: &protocol.JobSession{
			SessionID: "s", Epoch: 3, IsNew: true,
		}, Task: protocol.Task{
			Kind:     protocol.KindActivity,
			Activity: &protocol.ActivityTask{TaskID: "r-1", Arguments: payload.Payload{Blob: "AAAA"}},
		}},
	}
}

// spaced returns the same JSON in a form that Sojourn's encoder never writes, so that the slow path decodes it.
func spaced(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	return []byte(strings.Replace(b.String(), "{", `{"not": {"known": 1},`, 1))
}

func TestResponseIsReadInEveryForm(t *testing.T) {
	receipt := protocol.JobReceipt{ID: "r-1", Outcome: "completed", Recorded: true, Created: []string{"r-2-workflow"}}
	next := &protocol.ChannelPollResponse{Many: true, Jobs: jobs(), Status: protocol.PollLeased, AppRelease: "1.0"}
	for name, want := range map[string]protocol.ChannelCompleteResponse{
		"with jobs": {Many: true, Items: []protocol.JobReceipt{receipt}, Next: next},
		"without":   {Many: true, Items: []protocol.JobReceipt{receipt}},
		"nothing": {
			Many: true, Items: []protocol.JobReceipt{},
			Next: &protocol.ChannelPollResponse{Many: true, Jobs: []protocol.Job{}, Status: protocol.PollEmpty, RetryAfter: 5},
		},
		"one job next": {Next: &protocol.ChannelPollResponse{Jobs: jobs()[:1], Status: protocol.PollLeased}},
		"none next":    {Next: &protocol.ChannelPollResponse{Status: protocol.PollEmpty}},
	} {
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		forms := [][]byte{raw}
		if want.Many {
			forms = append(forms, spaced(t, raw))
		}
		for _, text := range forms {
			var got protocol.ChannelCompleteResponse
			if err := got.UnmarshalJSON(text); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s was read as %+v", name, text, got)
			}
		}
	}
}

// UnmarshalJSON must return an error for every invalid JSON text, also for callers that do not validate it first.
func TestABrokenAnswerIsRefused(t *testing.T) {
	raw, err := json.Marshal(protocol.ChannelCompleteResponse{
		Many: true, Items: []protocol.JobReceipt{}, Next: &protocol.ChannelPollResponse{Many: true, Jobs: jobs()},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		if got := (protocol.ChannelCompleteResponse{}); got.UnmarshalJSON(raw[:i]) == nil {
			t.Fatalf("cut at %d: %s was read as %+v", i, raw[:i], got)
		}
		if c := raw[i]; c == '{' || c == '}' || c == '[' || c == ']' || c == ':' || c == ',' {
			broken := bytes.Clone(raw)
			broken[i] = '!'
			if got := (protocol.ChannelCompleteResponse{}); !json.Valid(broken) && got.UnmarshalJSON(broken) == nil {
				t.Fatalf("%s was read as %+v", broken, got)
			}
		}
	}
}
