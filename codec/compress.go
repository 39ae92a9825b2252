package codec

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// CompressFrom is the default size from which Compress compresses a payload, in bytes.
const CompressFrom = 4 << 10

// minSaving is the divisor of the smallest saving: a payload that compression does not make smaller by at least
// 1/minSaving of its size stays as it is.
const minSaving = 8

// maxDecompressed is the maximum size of a decompressed payload: that of the largest blob, without base64.
const maxDecompressed = payload.MaxDecodedBytes / 4 * 3

// compression is zstd with a limit of the decompressed size.
type compression struct {
	from  int
	coder func() (*zstd.Encoder, *zstd.Decoder)
}

// Compress returns a codec that compresses payloads of at least minBytes with zstd; 0 means CompressFrom. A payload
// that does not become smaller by at least an eighth stays as it is. The app's limit of 2 MiB applies to the compressed
// form; uncompressed, a payload may have up to 16 MiB in base64, and decompression of a larger one fails.
//
// Set Compress before Encrypt, since encrypted data cannot be compressed. The size of a payload that was compressed
// before it was encrypted depends on its content. Do not compress payloads in which one person's secret is next to
// another person's text: an observer of the sizes could guess the secret.
func Compress(minBytes int) Codec {
	if minBytes <= 0 {
		minBytes = CompressFrom
	}
	return &compression{from: minBytes, coder: sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
		// Without a reader or a writer, and with valid options, both functions return no error.
		e, _ := zstd.NewWriter(nil)
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxDecompressed))
		return e, d
	})}
}

// Name returns "sojourn.zstd".
func (c *compression) Name() string { return "sojourn.zstd" }

// Encode compresses data.
func (c *compression) Encode(data []byte) ([]byte, string, error) {
	if len(data) < c.from {
		return nil, "", nil
	}
	e, _ := c.coder()
	small := e.EncodeAll(data, nil)
	if len(small) > len(data)-len(data)/minSaving {
		return nil, "", nil
	}
	return small, "", nil
}

// Decode decompresses data up to the limit.
func (c *compression) Decode(encoded []byte, _ string) ([]byte, error) {
	_, d := c.coder()
	data, err := d.DecodeAll(encoded, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, fmt.Errorf("decompressed it has more than the limit of %d MiB", maxDecompressed>>20)
	}
	return data, err
}
