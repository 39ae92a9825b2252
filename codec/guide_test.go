package codec

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/shared/payload"
)

func TestGuideStatesTheSizesOfPayloads(t *testing.T) {
	docnumbers.In(t, "guide/encryption.md", "zstd for payloads from {}, if they become smaller by at least an {} |",
		CompressFrom, minSaving)
	docnumbers.In(t, "guide/encryption.md", "The app's limit of {} applies to the encoded form; before compression a payload "+
		"may have up to {}, and the worker refuses a payload that would decompress to more than {} of binary data.",
		payload.MaxBytes, payload.MaxDecodedBytes, maxDecompressed)
	docnumbers.In(t, "guide/encryption.md", "values of a few hundred bytes that become {} in the worker's memory",
		maxDecompressed)
	docnumbers.In(t, "guide/encryption.md", "Their arguments and results have at most {} before they are encoded.",
		payload.MaxBytes)
	docnumbers.In(t, "guide/encryption.md", "An endpoint decodes at most {} payloads and {} of values per request.",
		maxEndpointPayloads, maxEndpointValues)
}

func TestGuideStatesTheFormOfEncryptedData(t *testing.T) {
	const nonce = 12 // NewGCMWithRandomNonce has no other size
	c, err := Encrypt(Key{ID: "k", Secret: make([]byte, KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	encoded, _, err := c.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	docnumbers.In(t, "guide/encryption.md", "the nonce ({} bytes), the ciphertext and the tag ({} bytes) of an Avro frame",
		nonce, len(encoded)-nonce)
}
