package codec

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/shared/payload"
)

func TestGuideStatesTheSizesOfPayloads(t *testing.T) {
	docnumbers.In(t, "guide/encryption.md", "zstd for payloads from {}, if", CompressFrom)
	docnumbers.In(t, "guide/encryption.md", "The app's limit of {} applies to the encoded form; before compression a payload "+
		"may have up to {}, and the worker refuses a payload that would decompress to more than {} of binary data.",
		payload.MaxBytes, payload.MaxDecodedBytes, maxDecompressed)
}
