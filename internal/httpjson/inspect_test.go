package httpjson_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A body of small values outside payloads is refused before it is decoded. The same values in a payload are not
// counted, nor are members that are not read.
func TestABodyOfManyValuesIsRefusedBeforeItIsDecoded(t *testing.T) {
	values := func(value string) string { return "[" + strings.Repeat(value+",", 500_000) + value + "]" }
	var wide strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&wide, `"k%d":1,`, i)
	}
	for _, c := range []struct {
		name, body string
		in         any
		refused    bool
	}{
		{"outcomes", `{"items":` + values("{}") + `}`, &protocol.CompleteRequest{}, true},
		{"outcomes by another case", `{"ITEMS":` + values("{}") + `}`, &protocol.CompleteRequest{}, true},
		{"commands", `{"items":[{"commands":` + values("{}") + `}]}`, &protocol.CompleteRequest{}, true},
		{"nulls", `{"items":` + values("null") + `}`, &protocol.CompleteRequest{}, true},
		{"outcomes of a socket", `{"items":` + values("{}") + `}`, &protocol.ChannelComplete{}, true},
		{"a result", `{"items":[{"result":` + values("[]") + `}]}`, &protocol.CompleteRequest{}, false},
		{"an input", `{"input":` + values("[]") + `}`, &protocol.StartRequest{}, false},
		{"an input of objects", `{"input":[{` + wide.String() + `"z":1}]}`, &protocol.StartRequest{}, false},
		{"a member that is not read", `{"other":` + values("{}") + `}`, &protocol.CompleteRequest{}, false},
		{"a list of the wrong type", `{"workflow_type":` + values("{}") + `}`, &protocol.StartRequest{}, false},
		{"no JSON", `{"items":[{},{}`, &protocol.CompleteRequest{}, false},
		{"deep", strings.Repeat(`{"items":[`, 100_000), &protocol.CompleteRequest{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := []byte(c.body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := httpjson.Decode(body, c.in)
			runtime.ReadMemStats(&after)
			if got := protocol.ReasonOf(err) == protocol.ReasonPayloadTooLarge; got != c.refused {
				t.Errorf("got %v", err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; c.refused && used > 1<<20 {
				t.Errorf("%d KiB were allocated to refuse %d KiB", used>>10, len(c.body)>>10)
			}
		})
	}
}

// A batch with the maximum number of outcomes and commands is accepted.
func TestTheLargestBatchIsNotTooManyValues(t *testing.T) {
	var in protocol.CompleteRequest
	for i := range protocol.MaxItems {
		in.Items = append(in.Items, protocol.CompleteItem{TaskID: fmt.Sprint(i), Owner: "w", Attempt: 1})
	}
	in.Items[0].Commands = make([]protocol.Command, protocol.MaxCommands)
	for i := range in.Items[0].Commands {
		in.Items[0].Commands[i].Type = "start_timer"
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out protocol.CompleteRequest
	if err := httpjson.Decode(raw, &out); err != nil || len(out.Items) != protocol.MaxItems {
		t.Errorf("%d items, %v", len(out.Items), err)
	}
}

// A refusal of a skimmed body can repeat all of it except for its long strings.
func TestASkimmedBodyKeepsItsShortMembers(t *testing.T) {
	long := strings.Repeat(`x\\\"{`, 500_000)
	raw := httpjson.Skim(strings.NewReader(
		`{"task_id":"t \" 1","result":{"blob":"` + long + `"},"lease_owner":"w","workflow_task_attempt":7}`,
	))
	var got struct {
		TaskID  string `json:"task_id"`
		Owner   string `json:"lease_owner"`
		Attempt int    `json:"workflow_task_attempt"`
	}
	if err := json.Unmarshal(raw, &got); err != nil || got.TaskID != `t " 1` || got.Owner != "w" || got.Attempt != 7 {
		t.Errorf("%+v, %v of %d bytes", got, err, len(raw))
	}
	if len(raw) > 4<<10 {
		t.Errorf("the result has %d bytes", len(raw))
	}
	if n := len(httpjson.Skim(strings.NewReader(strings.Repeat("[1,", 1_000_000)))); n > 64<<10 {
		t.Errorf("the result has %d bytes of small values", n)
	}
}
