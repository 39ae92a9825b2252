package payload

import (
	"strings"
	"testing"
)

type job struct {
	ID    string            `json:"id"`
	Path  string            `json:"path"`
	Tries int               `json:"tries"`
	Score float64           `json:"score"`
	Final bool              `json:"final,omitempty"`
	Tags  []string          `json:"tags"`
	Meta  map[string]string `json:"meta"`
}

var sampleJob = job{
	ID: "01JD3V9Q6Y8", Path: "corpus/alice.txt", Tries: 3, Score: 0.875, Tags: []string{"index", "words"},
	Meta: map[string]string{"lang": "en", "queue": "default"},
}

func plainJob() any {
	return map[string]any{
		"id": "01JD3V9Q6Y8", "path": "corpus/alice.txt", "tries": int64(3), "score": 0.875, "tags": []any{"index", "words"},
		"meta": map[string]any{"lang": "en", "queue": "default"},
	}
}

func BenchmarkEncodeString(b *testing.B) {
	for b.Loop() {
		if _, err := EncodeArgs("corpus/alice.txt"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeStruct(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeArgs(&sampleJob, 5); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodePlain(b *testing.B) {
	b.ReportAllocs()
	v := plainJob()
	for b.Loop() {
		if _, err := EncodeArgs(v, 5); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeStruct(b *testing.B) {
	b.ReportAllocs()
	p, _ := EncodeArgs(sampleJob, 5)
	for b.Loop() {
		var (
			j job
			n int
		)
		if err := DecodeArgs(p, &j, &n); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePlain(b *testing.B) {
	b.ReportAllocs()
	p, _ := EncodeArgs(sampleJob, 5)
	for b.Loop() {
		var v any
		if err := Decode(p, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValid(b *testing.B) {
	b.ReportAllocs()
	p, _ := EncodeArgs(sampleJob, 5)
	for b.Loop() {
		if err := Valid(p.Blob); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValidLarge measures Valid, which a worker calls for an executor's result and an app for values of requests.
func BenchmarkValidLarge(b *testing.B) {
	records := make([]any, 6000)
	for i := range records {
		records[i] = plainJob()
	}
	for name, v := range map[string]any{"text": strings.Repeat("x", 1<<20), "records": records} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p, err := Encode(v)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(p.Blob)))
			for b.Loop() {
				if err := Valid(p.Blob); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
