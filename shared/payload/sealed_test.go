package payload

import (
	"strings"
	"testing"
)

func TestASealedPayloadIsAnAvroMapForOtherClients(t *testing.T) {
	s := Sealed{Codec: "sojourn.aes-256-gcm", KeyID: "k1", Data: []byte{0, 255}}
	value, err := Seal(s, false)
	if err != nil {
		t.Fatal(err)
	}
	list, err := Seal(s, true)
	if err != nil {
		t.Fatal(err)
	}
	const members = `{"data":{"$type":"bytes","base64":"AP8="},"key_id":"k1","sojourn.codec":"sojourn.aes-256-gcm"}`
	for p, want := range map[Payload]string{value: members, list: "[" + members + "]"} {
		if raw, err := ToJSON(p); err != nil || string(raw) != want {
			t.Errorf("got %s, %v; want %s", raw, err, want)
		}
		if err := Valid(p.Blob); err != nil {
			t.Error(err)
		}
		if !IsSealed(p.Blob) {
			t.Errorf("%s is not recognized as sealed", p.Blob)
		}
	}
	if !strings.HasPrefix(value.Blob, SealedPrefix) {
		t.Errorf("%s does not begin with %s", value.Blob, SealedPrefix)
	}
	got, ok := Unseal(value, false)
	if !ok || got.Codec != s.Codec || got.KeyID != "k1" || string(got.Data) != "\x00\xff" {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := Unseal(list, true); !ok {
		t.Error("the list is not recognized")
	}
}

// Another client may encode the map again, with its members in another order.
func TestTheMembersOfASealedPayloadMayHaveAnyOrder(t *testing.T) {
	p, err := Encode(map[string]any{"data": []byte("x"), "key_id": "k", "sojourn.codec": "c"})
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := Unseal(p, false); !ok || s.Codec != "c" || s.KeyID != "k" || string(s.Data) != "x" {
		t.Errorf("got %+v, %v", s, ok)
	}
}

func TestOtherPayloadsAreNotSealed(t *testing.T) {
	sealed := map[string]any{"sojourn.codec": "c", "key_id": "k", "data": []byte("x")}
	for name, v := range map[string]any{
		"nothing": nil, "a text": strings.Repeat("x", 100), "a list of two": []any{sealed, sealed},
		"a nested list":     []any{[]any{sealed}},
		"a missing member":  map[string]any{"sojourn.codec": "c", "data": []byte("x"), "other": 1},
		"data that is text": map[string]any{"sojourn.codec": "c", "key_id": "k", "data": "x"},
		"a number as codec": map[string]any{"sojourn.codec": 1, "key_id": "k", "data": []byte("x")},
		"no codec":          map[string]any{"sojourn.codec": "", "key_id": "k", "data": []byte("x")},
		"a fourth member":   map[string]any{"sojourn.codec": "c", "key_id": "k", "data": []byte("x"), "more": 1},
	} {
		p, err := Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if IsSealed(p.Blob) {
			t.Errorf("%s is taken for an encoded payload", name)
		}
	}
	value, _ := Encode(sealed)
	if _, ok := Unseal(value, true); ok {
		t.Error("a value is taken for a list of arguments")
	}
	list, _ := EncodeArgs(sealed)
	if _, ok := Unseal(list, false); ok {
		t.Error("a list of arguments is taken for a value")
	}
	cut := Payload{value.Blob[:len(value.Blob)-8]}
	if IsSealed(cut.Blob) || IsSealed("wwHioz3/") || IsSealed("") {
		t.Error("an incomplete payload is taken for an encoded one")
	}
}

// Codecs may make a payload smaller, so the limit of the app does not apply before they encode it.
func TestALargerLimitAppliesToPayloadsBeforeACodec(t *testing.T) {
	big := strings.Repeat("x", MaxBytes)
	if _, err := EncodeArgs(big); err == nil {
		t.Error("EncodeArgs returned a payload that the app refuses")
	}
	p, err := EncodeArgsUpTo(MaxDecodedBytes, big)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := DecodeArgs(p, &got); err != nil || got != big {
		t.Errorf("cannot decode it: %v", err)
	}
	if Valid(p.Blob) == nil {
		t.Error("the app would accept it")
	}
	if _, err := EncodeUpTo(MaxDecodedBytes, strings.Repeat("x", MaxDecodedBytes)); err == nil {
		t.Error("the larger limit does not apply")
	}
	frame, err := Frame(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := OfFrame(frame); err != nil || again != p {
		t.Errorf("the frame gives another payload: %v", err)
	}
	if _, err := OfFrame([]byte("no frame")); err == nil {
		t.Error("any bytes become a payload")
	}
	if _, err := OfFrame(append(frame, 0)); err == nil {
		t.Error("trailing bytes become a payload")
	}
}
