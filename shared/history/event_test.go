package history_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
)

func TestAnEventHasItsMembersInOneOrder(t *testing.T) {
	at := history.Micros(1_700_000_000_000_001)
	for want, e := range map[string]history.Event{
		`{"id":"e2","sequence":2,"event_type":"TimerFired","recorded_at":"2023-11-14T22:13:20.000001Z","workflow_task_id":"a\"b","seen_through":1,` +
			`"payload":{"sequence":1,"timer_id":"t","delay_seconds":3}}`: {
			Seq: 2, At: at, Data: &history.TimerFired{Sequence: 1, TimerID: "t", Delay: 3}, TaskID: `a"b`, SeenThrough: 1,
		},
		`{"id":"e1","sequence":1,"event_type":"Newer","recorded_at":null,"payload":{"a":["}"]}}`: {
			Seq: 1, Data: &history.Unknown{Name: "Newer", Raw: json.RawMessage(`{"a":["}"]}`)},
		},
	} {
		got, err := json.Marshal(e)
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
		var back history.Event
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s: read as %+v, %v", got, back, err)
		}
	}
}

func TestAnEventIsReadAsExportsHaveIt(t *testing.T) {
	want := history.Event{Seq: 7, Data: &history.TimerFired{Sequence: 1, TimerID: "t"}}
	for _, text := range []string{
		`{"type":"TimerFired","sequence":7,"payload":{"sequence":1,"timer_id":"t"}}`,
		`{"Sequence":7,"event_type":"TimerFired","type":"ignored","extra":[{}],"payload":{"sequence":1,"timer_id":"t"}}`,
	} {
		var got history.Event
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as %+v, %v", text, got, err)
		}
	}
	var got history.Event
	for _, text := range []string{
		`{"sequence":"7"}`, `{"sequence":1,"event_type":"TimerFired","payload":{"sequence":"x"}}`, `[]`,
	} {
		if json.Unmarshal([]byte(text), &got) == nil {
			t.Errorf("%s: read as %+v", text, got)
		}
	}
}
