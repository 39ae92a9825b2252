package rawjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

func TestAppendEqualsTheEncoder(t *testing.T) {
	type nested struct {
		Name string          `json:"name"`
		Raw  json.RawMessage `json:"raw,omitempty"`
		More []any           `json:"more"`
	}
	values := []any{
		nil, true, 7, "<a&b>\n",
		[]string{},
		map[string]int{"b": 1, "a": 2},
		nested{"n", json.RawMessage(`{"x":[1, 2]}`), []any{1.5}},
		&nested{Name: strings.Repeat("x", 2<<20)}, "behind a large one",
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, v := range values {
				var want bytes.Buffer
				e := json.NewEncoder(&want)
				e.SetEscapeHTML(false)
				if err := e.Encode(v); err != nil {
					t.Error(err)
				}
				got, err := rawjson.Append([]byte("42["), v)
				if err != nil || string(got)+"\n" != "42["+want.String() {
					t.Errorf("%.80v becomes %.80s (%v), want %.80s", v, got, err, want.String())
				}
			}
			if got, err := rawjson.Append([]byte("42["), []any{1, func() {}}); err == nil || string(got) != "42[" {
				t.Errorf("a function becomes %s (%v)", got, err)
			}
		})
	}
	all.Wait()
}

// The buffer is reused: encoding some kilobytes allocates only the result.
func TestAppendTakesTheMemoryOfTheText(t *testing.T) {
	v := &struct{ Name string }{strings.Repeat("x", 5_000)}
	n := testing.AllocsPerRun(100, func() {
		if _, err := rawjson.Append(nil, v); err != nil {
			t.Error(err)
		}
	})
	if n > 1.5 { // a garbage collection may free the encoder
		t.Errorf("%v allocations, want 1", n)
	}
}
