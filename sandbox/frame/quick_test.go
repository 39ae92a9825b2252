package frame

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Headers of the fast paths equal their JSON encoding.
func TestQuickHeadersEqualJSON(t *testing.T) {
	full := Header{
		T: Invoke, ID: "a1", Hash: "h", Session: "s", Epoch: 3, Activity: "a.b", Entry: "main", Export: "recovery",
		Attempt: 2, DeadlineMS: 1234567890123,
		Keys: map[string]string{"run_id": "R", "task_id": "T-1", "w": ""}, IsNew: true, Lend: true,
		Shared: 99,
	}
	quoted, most := full, full
	quoted.Session = `a "b"`
	most.Keys = map[string]string{"ключ": "é\n"}
	for _, want := range []Header{full, {T: Invoke, ID: "1"}, quoted, most} {
		stream, err := Append(nil, Frame{Header: want}, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		var got Header
		if err := json.Unmarshal(stream[prefix:], &got); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v\n%s", stream[prefix:], err, cmp.Diff(got, want))
		}
	}
	quick := 0
	for _, text := range []string{
		`{"t":"result","id":"1"}`,
		`{"t":"result","id":"zz","usage":{"cpu_ms":0.174,"rss":40960}}`,
		`{"t":"result","id":"zz","usage":{"cpu_ms":12,"rss":40960},"room":70000}`,
		`{"t":"result","id":"zz","room":70000}`,
		// these are left to JSON
		`{"t":"result","id":"zz","usage":{"cpu_ms":1e-7,"rss":1}}`, `{"t":"result","id":"a\"b"}`,
		`{"t":"result","id":"zz","more":1}`, `{"id":"zz","t":"result"}`, `{"t":"result","id":"zz","room":-1}`,
		`{"t":"result","id":"zz","usage":{"cpu_ms":01,"rss":1}}`, `{"t":"result","id":"zz","usage":{"cpu_ms":1.,"rss":1}}`,
		`{"t":"result","id":"zz","usage":{"cpu_ms":Inf,"rss":1}}`, `{"t":"result","id":"zz","room":1.5}`,
		`{"t":"result","id":"zz"}}`, `{"t":"result","id":"zz"`, `{"t":"result","id":"zz","room":07}`,
	} {
		var got, want Header
		if !readResult(&got, []byte(text)) {
			continue
		}
		quick++
		if err := json.Unmarshal([]byte(text), &want); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v\n%s", text, err, cmp.Diff(got, want))
		}
	}
	if quick != 4 {
		t.Errorf("%d are read quickly", quick)
	}
	name := full
	name.Activity = string(bytes.Repeat([]byte("x"), DefaultLimits.Header))
	if _, err := Append(nil, Frame{Header: name}, DefaultLimits); err == nil {
		t.Error("a header over the limit is written")
	}
}
