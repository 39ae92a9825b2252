package rpc

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzEnvelope compares the fast path of decoding an envelope with encoding/json: the results of the fast path must be
// the same.
func FuzzEnvelope(f *testing.F) {
	for _, seed := range []string{
		`{"method":"poll","payload":{"a":[1,"}\\\"",{}]},"deadlineMs":5}`, ` { "payload" : null , "method" : "x" } `, `{}`,
		`{"Method":"x"}`, `[]`,
		`{"method":"x","method":"y"}`, `{"method":7}`, `{"method":"a\u0041"}`, `{"method":"x","payload":"a:b,c"}`,
		`{"method":"x",}`, `{"other":[1,2],"method":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var want envelopeIn
		if json.Unmarshal(input, &want) != nil {
			var got envelopeIn
			_ = got.read(input) // must not panic; errors inside the payload are found later
			return
		}
		var got envelopeIn
		if err := got.read(input); err != nil {
			t.Fatalf("%s: %v", input, err)
		}
		if got.Method != want.Method || got.DeadlineMS != want.DeadlineMS ||
			!bytes.Equal(got.Payload, bytes.TrimSpace(want.Payload)) {
			t.Fatalf("%s: got %+v, want %+v", input, got, want)
		}
	})
}
