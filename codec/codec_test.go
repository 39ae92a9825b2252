package codec_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/payload"
)

func key(id string) codec.Key {
	return codec.Key{ID: id, Secret: bytes.Repeat([]byte(id[:1]), codec.KeySize)}
}

func encrypt(t *testing.T, current codec.Key, previous ...codec.Key) codec.Codec {
	t.Helper()
	c, err := codec.Encrypt(current, previous...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func args(t *testing.T, all ...any) payload.Payload {
	t.Helper()
	p, err := payload.EncodeArgs(all...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEncryptedDataHasANewNonceEachTime(t *testing.T) {
	c := encrypt(t, key("a"))
	first, id, err := c.Encode([]byte("secret"))
	if err != nil || id != "a" {
		t.Fatal(id, err)
	}
	second, _, _ := c.Encode([]byte("secret"))
	if bytes.Equal(first, second) || bytes.Equal(first[:12], second[:12]) {
		t.Error("two encryptions of a value have the same nonce")
	}
	if bytes.Contains(first, []byte("secret")) {
		t.Error("the encoded form has the plaintext")
	}
	if got, err := c.Decode(first, "a"); err != nil || string(got) != "secret" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOldKeysDecodeAndTheCurrentKeyEncodes(t *testing.T) {
	old := encrypt(t, key("a"))
	rotated := encrypt(t, key("b"), key("a"))
	was, id, _ := old.Encode([]byte("x"))
	if got, err := rotated.Decode(was, id); err != nil || string(got) != "x" {
		t.Errorf("after the rotation: %q, %v", got, err)
	}
	now, id, _ := rotated.Encode([]byte("x"))
	if id != "b" {
		t.Errorf("encodes with key %q", id)
	}
	if _, err := old.Decode(now, id); !errors.Is(err, codec.ErrUnknownKey) {
		t.Errorf("without the key: %v", err)
	}
}

// The key ID is authenticated: with another ID the data does not decode, even if both IDs have the same secret.
func TestChangedDataAndChangedKeyIDsAreRefused(t *testing.T) {
	same := key("a")
	same.ID = "other"
	c := encrypt(t, key("a"), same)
	data, id, _ := c.Encode([]byte("secret"))
	if _, err := c.Decode(data, "other"); err == nil {
		t.Error("data of another key ID decodes")
	}
	data[len(data)-1] ^= 1
	if _, err := c.Decode(data, id); err == nil {
		t.Error("changed data decodes")
	}
	if _, err := c.Decode([]byte{1}, id); err == nil {
		t.Error("one byte decodes")
	}
}

func TestInvalidKeysAreRefused(t *testing.T) {
	for name, k := range map[string]codec.Key{
		"no ID": {Secret: make([]byte, 32)}, "short": {ID: "k", Secret: make([]byte, 16)}, "no secret": {ID: "k"},
		"long ID": {ID: strings.Repeat("k", 256), Secret: make([]byte, 32)},
	} {
		if _, err := codec.Encrypt(k); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := codec.Encrypt(key("a"), key("a")); err == nil {
		t.Error("two keys with one ID: no error")
	}
}

func TestOnlyLargeCompressiblePayloadsAreCompressed(t *testing.T) {
	c := codec.Compress(1000)
	if got, _, err := c.Encode(bytes.Repeat([]byte("x"), 999)); got != nil || err != nil {
		t.Errorf("999 bytes: %d bytes, %v", len(got), err)
	}
	text := bytes.Repeat([]byte("x"), 1000)
	small, _, err := c.Encode(text)
	if err != nil || len(small) == 0 || len(small) > 500 {
		t.Fatalf("1000 bytes: %d bytes, %v", len(small), err)
	}
	if got, err := c.Decode(small, ""); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	random, _, _ := encrypt(t, key("a")).Encode(make([]byte, 10_000))
	if got, _, err := c.Encode(random); got != nil || err != nil {
		t.Errorf("incompressible: %d bytes, %v", len(got), err)
	}
}

func TestDecompressionIsBounded(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := e.EncodeAll(make([]byte, 64<<20), nil)
	var stream bytes.Buffer // without the size of the content in its header
	w, err := zstd.NewWriter(&stream)
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"with its size": bomb, "without its size": stream.Bytes()} {
		got, err := codec.Compress(0).Decode(data, "")
		if err == nil || !strings.Contains(err.Error(), "limit of 12 MiB") {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := codec.Compress(0).Decode([]byte("no zstd"), ""); err == nil {
		t.Error("other bytes decode")
	}
}

func TestAChainEncodesInOrderAndDecodesWhatItKnows(t *testing.T) {
	secret := encrypt(t, key("a"))
	both := codecs.Chain{codec.Compress(10), secret}
	plain := args(t, strings.Repeat("secret ", 1000), 1)
	encoded, err := both.EncodeArgs(plain)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded.Blob) > len(plain.Blob)/2 {
		t.Errorf("%d bytes became %d: it was not compressed first", len(plain.Blob), len(encoded.Blob))
	}
	// the outermost form names the encryption, and is an argument list
	if s, ok := payload.Unseal(encoded, true); !ok || s.Codec != secret.Name() || s.KeyID != "a" {
		t.Errorf("the outer form is %q of key %q", s.Codec, s.KeyID)
	}
	for name, chain := range map[string]codecs.Chain{"same": both, "other order": {secret, codec.Compress(0)}} {
		if got, err := chain.DecodeArgs(encoded); err != nil || got != plain {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		chain codecs.Chain
		want  string
	}{
		"no codec":    {nil, `payload is encrypted with key "a"; configure the codec`},
		"no key":      {codecs.Chain{encrypt(t, key("b"))}, `payload is encrypted with key "a"; configure the codec`},
		"no compress": {codecs.Chain{secret}, `payload is encoded with codec "sojourn.zstd"; configure the codec`},
	} {
		if _, err := c.chain.DecodeArgs(encoded); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := key("x")
	wrong.ID = "a"
	if _, err := (codecs.Chain{encrypt(t, wrong)}).DecodeArgs(encoded); err == nil ||
		!strings.Contains(err.Error(), `key "a": `) {
		t.Errorf("wrong secret: %v", err)
	}
	if got, err := both.DecodeArgs(plain); err != nil || got != plain {
		t.Errorf("a payload without a codec: %v", err)
	}
	if got, err := both.EncodeValue(payload.Payload{}); err != nil || !got.IsZero() {
		t.Errorf("no value: %v, %v", got, err)
	}
}

// The limit of 2 MiB applies to the encoded form.
func TestTheSizeLimitAppliesToTheEncodedForm(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	compressing := codecs.Chain{codec.Compress(0)}
	p, err := compressing.NewArgs(big)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := compressing.EncodeArgs(p)
	if err != nil || len(encoded.Blob) > 10_000 {
		t.Fatalf("%d bytes, %v", len(encoded.Blob), err)
	}
	decoded, err := compressing.DecodeArgs(encoded)
	if err != nil || decoded != p {
		t.Error(err)
	}
	encrypting := codecs.Chain{encrypt(t, key("a"))}
	fits := strings.Repeat("x", payload.MaxBytes/4*3-40) // without encryption it fits, but not with its nonce and its tag
	if _, err := payload.EncodeArgs(fits); err != nil {
		t.Fatal(err)
	}
	if _, err := encrypting.NewArgs(fits); !errors.Is(err, payload.ErrTooLarge) {
		t.Errorf("too large when encrypted: %v", err)
	}
	if _, err := encrypting.NewValue(big); !errors.Is(err, payload.ErrTooLarge) {
		t.Errorf("a large value: %v", err)
	}
	if _, err := codecs.Chain(nil).NewArgs(big); !errors.Is(err, payload.ErrTooLarge) {
		t.Errorf("without codecs: %v", err)
	}
}

// The bytes that a codec returns are not trusted: the chain checks that they are a payload.
func TestACodecThatDecodesToOtherBytesIsRefused(t *testing.T) {
	odd := codecs.Chain{reversing{}}
	sealed, err := payload.Seal(payload.Sealed{Codec: "reversing", Data: []byte("no frame")}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := odd.DecodeValue(sealed); err == nil || !strings.Contains(err.Error(), `codec "reversing"`) {
		t.Errorf("got %v", err)
	}
	for name, bad := range map[string]codecs.Chain{
		"nil": {nil}, "twice": {reversing{}, reversing{}}, "many": make(codecs.Chain, 9), "no name": {nameless{}},
	} {
		if bad.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type reversing struct{}

func (reversing) Name() string { return "reversing" }

func (reversing) Encode(data []byte) ([]byte, string, error) { return data, "", nil }

func (reversing) Decode(data []byte, _ string) ([]byte, error) { return data, nil }

type nameless struct{ reversing }

func (nameless) Name() string { return "" }
