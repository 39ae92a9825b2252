package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// blobOf returns n characters of Base64 that do not compress well.
func blobOf(n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // contents of a test
	var b strings.Builder
	for range n {
		b.WriteByte(alphabet[random.IntN(len(alphabet))])
	}
	return b.String()
}

// An outline is the same whether the store read the whole event or not, and the store does not read large values.
func testOutlines(t *testing.T, s Suite) {
	w := s.New(t)
	in := start(w, "a")
	// The end of this event is in another member than its large value, so that the store has to read all of it.
	in.Arguments, in.Request.Memo = blobOf(100_000), json.RawMessage(`{"m":"`+blobOf(50_000)+`"}`)
	run := w.StartAs(in)
	const large = 1 << 20
	values := []string{blobOf(20), blobOf(5000), blobOf(100_000), "not Base64, \"" + blobOf(100_000), blobOf(300_000)}
	for i, v := range values {
		w.Do(run, engine.SignalRun{Name: fmt.Sprint("s\"é", i), Value: v})
	}
	const keep = 8 << 10
	outlines := func(run string, after int64, most int) (list []history.Outline) {
		w.View(func(r store.Reader) (err error) {
			list, err = r.Outlines(t.Context(), run, after, 0, 1000, most, keep)
			return err
		})
		return list
	}
	list := outlines(run, 0, 0)
	events := w.History(run)
	if len(list) != len(events) || len(list) != len(values)+1 {
		t.Fatalf("%d outlines of %d events", len(list), len(events))
	}
	for i, o := range list {
		body, err := history.EncodeData(events[i].Data)
		if err != nil {
			t.Fatal(err)
		}
		want := history.Outline{Seq: events[i].Seq, At: events[i].At, Type: events[i].Type(), TaskID: events[i].TaskID}
		want.Payload, want.Values = history.OutlineOf(body, keep)
		if got, w := mustJSON(t, o), mustJSON(t, want); !bytes.Equal(got, w) {
			t.Errorf("outline of event %d:\n%.300s\nwant\n%.300s", o.Seq, got, w)
		}
		if i > 0 && o.Values[0].Size != len(values[i-1]) {
			t.Errorf("value of event %d has %d bytes, want %d", o.Seq, o.Values[0].Size, len(values[i-1]))
		}
	}
	if got := outlines(run, 2, 1); len(got) != 1 || got[0].Seq != 3 {
		t.Errorf("a page smaller than an event is %v", got)
	}

	// The bytes that the reads of a history allocate grow with the number of events, not with their values.
	some := func(id string, size int) (allocated uint64, page int) {
		run := w.Start(id)
		for i := range 20 {
			w.Do(run, engine.SignalRun{Name: fmt.Sprint(i), Value: blobOf(size)})
		}
		outlines(run, 0, 0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list := outlines(run, 0, 0)
		runtime.ReadMemStats(&after)
		for i := range list {
			page += list[i].Bytes()
		}
		return after.TotalAlloc - before.TotalAlloc, page
	}
	_, small := some("small", 1<<10)
	allocated, page := some("large", large)
	if most := small + 20*keep; page > most {
		t.Errorf("outlines of 20 values of 1 MiB have %d bytes, want at most %d", page, most)
	}
	if most := uint64(20 * (200 << 10)); allocated > most {
		t.Errorf("20 events of 1 MiB were read with %d bytes, want at most %d", allocated, most)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
