package apptest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// results is the number of activities of a large run.
const results = 61

// large makes a closed run with results, an input, an output and a memo entry of size bytes each.
func (h hand) large(id string, size int) (run string) {
	h.t.Helper()
	text := strings.Repeat("x", size)
	run = h.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"`+handQueue+
		`","input":["`+text+`"],"memo":{"m":"`+text[:min(size, 200_000)]+`"}}`).text("run_id")
	commands := make([]string, results)
	for i := range commands {
		commands[i] = step
	}
	h.decide(h.poll("workflow"), commands...)
	result := envelope(h.t, `"`+text+`"`)
	for range results {
		t := h.poll("activity")
		h.want(200, "POST", stepPath(t, "complete"), h.stepBody(t, `,"result":`+result))
	}
	for {
		t := h.poll("workflow")
		if t.number("last_history_sequence") < results*2 {
			h.want(200, "POST", flowPath(t, "fail"), h.flowBody(
				t, `,"failure":{"type":"WorkflowTaskWaitingForHistory","message":"nothing new"}`,
			))
			continue
		}
		h.decide(t, `{"type":"complete_workflow","result":`+result+`}`)
		return run
	}
}

// page returns the number of bytes of the responses that show a run: its description, its history, its entry in a list,
// and the stream of its history.
func (c caller) page(id, run string) (bytes map[string]int) {
	c.t.Helper()
	bytes = map[string]int{}
	for _, path := range []string{
		"/api/runs/" + run + "?values=preview",
		"/api/workflows/" + id + "/runs/" + run + "/history?page_size=500&values=preview",
		"/api/workflows/" + id + "/runs/" + run + "/history/stream?values=preview",
		"/api/workflows?workflow_type=flow&query=" + id + "&values=none",
		"/api/workflows/" + id + "/runs/" + run + "/history?page_size=500&values=none",
	} {
		got := c.want(200, "GET", path, "")
		if got.body["next_page_token"] != nil {
			c.t.Errorf("%s has a next page", path)
		}
		bytes[strings.ReplaceAll(strings.ReplaceAll(path, run, "RUN"), id, "ID")] = len(got.raw)
	}
	return bytes
}

// The page of a run does not grow with the values of the run, except for their previews.
func TestTheViewsOfARunDoNotLoadItsValues(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		const size = 1 << 20
		small, large := h.large("small-1", 1<<10), h.large("large-1", size)
		before, after := h.page("small-1", small), h.page("large-1", large)
		for path, n := range after {
			previews := 0
			if strings.Contains(path, "values=preview") {
				if previews = 3; strings.Contains(path, "history") {
					previews = results + 3
				}
			}
			// Next to a preview is its size.
			if most := before[path] + previews*(protocol.PreviewBytes+64) + 1024; n > most {
				t.Errorf("%s has %d bytes with values of 1 KiB and %d with values of 1 MiB, want at most %d", path, before[path],
					n, most)
			}
		}

		// A preview contains its size, and the whole value is loaded by its event.
		history := "/api/workflows/large-1/runs/" + large + "/history"
		page := h.events(history + "?values=preview")
		whole := 0
		for _, e := range page {
			if e.Type != "ActivityCompleted" {
				continue
			}
			cut := e.Truncated["result"]
			if cut.Size < size || cut.Size > size+64 || len(cut.Preview) != protocol.PreviewBytes || cut.Encoded ||
				!strings.HasPrefix(cut.Preview, `"xxx`) || e.Payload["result"] != nil || e.Decoded["result"] != nil {
				t.Fatalf("event %d: %+v %.80s", e.Sequence, cut, e.Payload)
			}
			if whole++; whole > 1 {
				continue
			}
			one := h.events(fmt.Sprintf("%s?after=%d&page_size=1&decoded=true", history, e.Sequence-1))
			if len(one) != 1 || one[0].Sequence != e.Sequence || len(one[0].Decoded["result"]) != size+2 {
				t.Fatalf("event %d by itself: %d events, the result has %d bytes", e.Sequence, len(one),
					len(one[0].Decoded["result"]))
			}
		}
		if whole != results {
			t.Errorf("%d results in the history, want %d", whole, results)
		}
		none := h.events(history + "?values=none")
		if cut := none[len(none)-1].Truncated["output"]; cut.Size < size || cut.Preview != "" {
			t.Errorf("without values the output is %+v", cut)
		}

		var view protocol.RunView
		got := h.want(200, "GET", "/api/workflows/large-1/runs/"+large+"?values=preview", "")
		if err := json.Unmarshal([]byte(got.raw), &view); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"input", "output", "memo"} {
			if cut := view.Truncated[name]; cut.Size < 200_000 || len(cut.Preview) != protocol.PreviewBytes {
				t.Errorf("%s of the run is %+v", name, cut)
			}
		}
		if view.InputEnvelope != nil || view.OutputEnvelope != nil || view.Input != nil || view.Output != nil {
			t.Errorf("the run has whole values: %.200s", got.raw)
		}
	})
}

// shownEvent is an event in a response of the history route.
type shownEvent struct {
	Sequence  int64                      `json:"sequence"`
	Type      string                     `json:"event_type"`
	Payload   map[string]json.RawMessage `json:"payload"`
	Decoded   map[string]json.RawMessage `json:"decoded"`
	Truncated protocol.Truncated         `json:"truncated"`
}

func (c caller) events(path string) []shownEvent {
	c.t.Helper()
	var page struct {
		Events []shownEvent `json:"events"`
	}
	if err := json.Unmarshal([]byte(c.want(200, "GET", path, "").raw), &page); err != nil {
		c.t.Fatal(err)
	}
	return page.Events
}

// A preview has all members of a payload except the encoded values, and values of at most 4 KiB decoded.
func TestAPreviewOfSmallValuesHasThemDecoded(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		run := h.large("small-1", 1<<10)
		history := "/api/workflows/small-1/runs/" + run + "/history"
		full, preview := h.events(history+"?decoded=true"), h.events(history+"?values=preview")
		if len(full) != len(preview) || len(full) < 2*results {
			t.Fatalf("%d events, and %d as a preview", len(full), len(preview))
		}
		for i, e := range preview {
			want := full[i]
			for name := range want.Decoded {
				delete(want.Payload, name)
			}
			if got, want := fmt.Sprintf("%s", e.Payload), fmt.Sprintf("%s", want.Payload); got != want {
				t.Errorf("event %d:\n%s, want\n%s", e.Sequence, got, want)
			}
			if got, want := fmt.Sprintf("%s", e.Decoded), fmt.Sprintf("%s", want.Decoded); got != want ||
				len(e.Truncated) > 0 {
				t.Errorf("event %d: %s and %v, want %s", e.Sequence, got, e.Truncated, want)
			}
		}
		view := h.want(200, "GET", "/api/runs/"+run+"?values=preview", "").body
		if fmt.Sprint(view["output"]) != strings.Repeat("x", 1<<10) || view["truncated"] != nil || view["input"] == nil {
			t.Errorf("the run is %v", view)
		}
	})
}

func TestAnInvalidSelectionOfValuesIsRefused(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	run := c.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q"}`).text("run_id")
	of := "/api/workflows/f/runs/" + run
	for path, want := range map[string]string{
		of + "/history?values=previw":                   "values: must be full, preview or none; did you mean preview?",
		of + "/history/stream?values=non":               "values: must be full, preview or none; did you mean none?",
		of + "?values=everything":                       "values: must be full, preview or none",
		"/api/runs/" + run + "?values=x":                "values: must be full, preview or none",
		"/api/workflows/f?values=x":                     "values: must be full, preview or none",
		"/api/workflows?values=x":                       "values: must be full, preview or none",
		of + "/history?after=x":                         "after: must be the sequence number of an event",
		of + "/history?after=-1":                        "after: must be the sequence number of an event",
		of + "/history?after=1&next_page_token=MQ==":    "after: must not be combined with next_page_token",
		of + "/history?values=none&decoded=true":        "decoded: must not be combined with values=none",
		of + "/history/stream?values=none&decoded=true": "decoded: must not be combined with values=none",
	} {
		if got := c.want(422, "GET", path, ""); got.text("reason") != "validation_failed" || got.text("message") != want {
			t.Errorf("%s: %s, want %s", path, got.raw, want)
		}
	}
}

func TestSchedulesAreListedWithoutTheirInput(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	text := strings.Repeat("x", 100_000)
	for _, id := range []string{"a", "b"} {
		c.want(201, "POST", "/api/schedules", `{"schedule_id":"`+id+`","spec":{"intervals":[{"every":"PT1H"}]},
			"action":{"workflow_type":"t","task_queue":"q","input":["`+text+`"],"memo":{"k":"v"}}}`)
	}
	list := c.want(200, "GET", "/api/schedules?values=none", "")
	if len(list.raw) > 8<<10 || strings.Contains(list.raw, `"k":"v"`) ||
		!strings.Contains(list.raw, `"action.input":{"size_bytes":100004}`) {
		t.Errorf("a list of %d bytes: %.2000s", len(list.raw), list.raw)
	}
	one := c.want(200, "GET", "/api/schedules/a?values=preview", "")
	if len(one.raw) > 16<<10 || !strings.Contains(one.raw, `"k":"v"`) || !strings.Contains(one.raw, `"preview":"[\"xxx`) {
		t.Errorf("a schedule of %d bytes: %.2000s", len(one.raw), one.raw)
	}
	if whole := c.want(200, "GET", "/api/schedules/a", ""); !strings.Contains(whole.raw, text) ||
		strings.Contains(whole.raw, "truncated") {
		t.Errorf("by default a schedule has %d bytes", len(whole.raw))
	}
	c.want(422, "GET", "/api/schedules?values=some", "")
	c.want(422, "GET", "/api/schedules/a?values=some", "")
}
