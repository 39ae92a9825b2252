package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

func TestTheCanonicalFormIsTheSameInEveryLanguage(t *testing.T) {
	for document, want := range map[string]string{
		`{ "b": [1, null, true], "a": {"z": "x", "y": ""} }`: `{"a":{"y":"","z":"x"},"b":[1,null,true]}`,
		`"\u00e4\ud83d\ude00/\"\\\n\u0001\u007f"`:            `"\u00e4\ud83d\ude00/\"\\\n\u0001` + "\x7f" + `"`,
		`[1.0,-0.0,-0,1e16,1e17,0.0001,0.00001,1.5e-7]`:      `[1.0,-0.0,0,10000000000000000.0,1.0e+17,0.0001,1.0e-5,1.5e-7]`,
		`[9223372036854775807,12345678901234567890]`:         `[9223372036854775807,12345678901234567890]`,
	} {
		got, err := checksum([]byte(document))
		sum := sha256.Sum256([]byte(want))
		if err != nil || got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: got another form than %s (%v)", document, want, err)
		}
	}
	if _, err := checksum([]byte(`[1e999]`)); err == nil {
		t.Error("a number without a value has a checksum")
	}
}
