package codec_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// sealed returns the members of an encoded payload, for a JSON document.
func sealed(t *testing.T, p payload.Payload) map[string]any {
	t.Helper()
	s, ok := payload.Unseal(p, true)
	if !ok {
		if s, ok = payload.Unseal(p, false); !ok {
			t.Fatalf("%s is not encoded", p.Blob)
		}
	}
	return map[string]any{"sojourn.codec": s.Codec, "key_id": s.KeyID, "data": s.Data}
}

// The published SDK has no codecs of this kind. It must still be able to read the payloads, as maps.
func TestThePublishedSDKDecodesAnEncryptedPayloadAsAMap(t *testing.T) {
	python := apptest.Python(t, "../interop/python/requirements.txt")
	chain := codecs.Chain{encrypt(t, key("a"))}
	list, err := chain.EncodeArgs(args(t, "text", 1))
	if err != nil {
		t.Fatal(err)
	}
	value, err := chain.EncodeValue(args(t, "text"))
	if err != nil {
		t.Fatal(err)
	}
	small, err := codecs.Chain{codec.Compress(1)}.EncodeValue(args(t, string(make([]byte, 1000))))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []payload.Payload{list, value, small} {
		envelope, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, "-c", `
import base64, json, sys
from durable_workflow import serializer
def plain(v):
    if isinstance(v, bytes): return base64.b64encode(v).decode()
    if isinstance(v, list): return [plain(x) for x in v]
    if isinstance(v, dict): return {k: plain(x) for k, x in v.items()}
    return v
decoded = serializer.decode_envelope(json.loads(sys.argv[1]))
assert serializer.envelope(decoded)["blob"] == json.loads(sys.argv[1])["blob"] # also if a workflow passes it on
print(json.dumps(plain(decoded)))`, string(envelope)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var got, want any = nil, any(sealed(t, p))
		if p == list {
			want = []any{want}
		}
		wanted, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(wanted, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("got  %s\nwant %s", a, b)
		}
	}
}
