package socketio

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

func TestParsePacket(t *testing.T) {
	for text, want := range map[string]packet{
		`0`:                  {kind: '0', namespace: "/"},
		`0{"a":1}`:           {kind: '0', namespace: "/", data: []byte(`{"a":1}`)},
		`0/x`:                {kind: '0', namespace: "/x"},
		`1/x,`:               {kind: '1', namespace: "/x"},
		`2["e"]`:             {kind: '2', namespace: "/", data: []byte(`["e"]`)},
		`2/x,7["e",1]`:       {kind: '2', namespace: "/x", id: 7, hasID: true, data: []byte(`["e",1]`)},
		`30[]`:               {kind: '3', namespace: "/", id: 0, hasID: true, data: []byte(`[]`)},
		`52-/x,7["e"]`:       {kind: '5', namespace: "/x", id: 7, hasID: true, attachments: 2, data: []byte(`["e"]`)},
		`4/x,{"message":""}`: {kind: '4', namespace: "/x", data: []byte(`{"message":""}`)},
	} {
		got, err := parsePacket([]byte(text), 2)
		if len(got.data) == 0 {
			got.data = nil
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestSplitArray(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`: {}, ` [ ] `: {}, `[1]`: {`1`}, `[ "a" , {"b":[1,2]} ,null]`: {`"a"`, `{"b":[1,2]}`, `null`},
		`["],\"[\\",",",2]`: {`"],\"[\\"`, `","`, `2`}, `[[[]],{}]`: {`[[]]`, `{}`},
	} {
		got, err := splitArray([]byte(text))
		same := err == nil && len(got) == len(want)
		for i := range got {
			same = same && string(got[i]) == want[i]
		}
		if !same {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
	for _, text := range []string{``, `[`, `]`, `{}`, `[1`, `[1,]`, `[,1]`, `["]`, `["\"]`, `[]]`, `[[]`, `[1]]`, `[,]`} {
		if got, err := splitArray([]byte(text)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
}

// FuzzPacket parses arbitrary input, with attachments separated by 0xff. It must not panic, splitArray must return the
// same elements as encoding/json if the latter accepts the text, and a parsed packet must not change when it is encoded
// and parsed again.
func FuzzPacket(f *testing.F) {
	for _, seed := range []string{
		"2", `2["e",1]`, `2/x,7["e",{"a":[1,"\"]"]}]`, `0{"token":"x"}`,
		"51-[\"e\",{\"_placeholder\":true,\"num\":0}]\xffblob", `31["x"]`, "4{}", "1/x",
		"52-[{\"_placeholder\":true,\"num\":1},{\"_placeholder\":true,\"num\":0}]\xffa\xffb", "[[[[",
		"2[\"\\u0000\",\"\xf0\"]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		text, rest, _ := bytes.Cut(input, []byte{0xff})
		parts := assembler{maxAttachments: 4, maxBytes: func() int { return 1 << 16 }}
		p, err := parts.text(text)
		for err == nil && p == nil {
			var blob []byte
			blob, rest, _ = bytes.Cut(rest, []byte{0xff})
			p, err = parts.binary(blob)
		}
		if err != nil {
			if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrPayloadTooLarge) {
				t.Errorf("an error without a cause: %v", err)
			}
			return
		}
		if p.kind != packetEvent && p.kind != packetAck {
			return
		}
		items, err := splitArray(p.data)
		var want []json.RawMessage
		if json.Unmarshal(p.data, &want) != nil {
			return // invalid inside an element, which its decoder reports
		}
		if err != nil || len(items) != len(want) {
			t.Fatalf("%s: got %q, %v", p.data, items, err)
		}
		args := make([]any, len(items))
		for i := range items {
			if !bytes.Equal(items[i], bytes.TrimSpace(want[i])) {
				t.Fatalf("item %d of %s: got %s, want %s", i, p.data, items[i], want[i])
			}
			args[i] = items[i]
		}
		frames, err := encodeArgs(p.kind, p.namespace, p.id, p.hasID, nil, args)
		if err != nil {
			t.Fatalf("%s: %v", p.data, err)
		}
		second, err := parsePacket(frames[0].data[1:], 0)
		if err != nil || second.kind != p.kind || second.namespace != p.namespace || second.id != p.id ||
			second.hasID != p.hasID {
			t.Fatalf("got %+v, %v, want %+v", second, err, p)
		}
	})
}
