package sandbox_test

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// TestValuesSurviveTheRoundTrip sends values through handlers that return their arguments.
func TestValuesSurviveTheRoundTrip(t *testing.T) {
	wide := map[string]any{}
	for i := range 200 {
		wide[strings.Repeat("x", i+1)] = int64(i)
	}
	values := map[string]any{
		"nothing": nil, "true": true, "false": false,
		"zero": int64(0), "small": int64(-64), "one byte more": int64(64),
		"32 bits": int64(math.MaxInt32), "beyond 32 bits": int64(math.MaxInt32) + 1,
		"below 32 bits": int64(math.MinInt32) - 1,
		"49 bits":       int64(1)<<48 - 1, "50 bits": int64(1)<<48 + 1, "last exact": int64(1)<<53 - 1,
		"beyond exact": int64(1)<<53 + 1, "below exact": -int64(1)<<53 - 1, "long": int64(-1234567890123456789),
		"largest": int64(math.MaxInt64), "smallest": int64(math.MinInt64),
		"fraction": 0.1, "tiny": math.SmallestNonzeroFloat64, "huge": math.MaxFloat64,
		"empty text": "", "ASCII": strings.Repeat("a", 24), "longer": strings.Repeat("b", 65),
		"long text":     strings.Repeat("c", 100_000),
		"short foreign": "é", "foreign": strings.Repeat("日本語🙂", 9), "zero byte": "a\x00b", "quotes": "\"\\\n\u2028",
		"no items": []any{}, "no entries": map[string]any{}, "many entries": wide,
		"nested": []any{[]any{[]any{}}, map[string]any{"ключ": []any{int64(1), nil, map[string]any{"": "x"}}}},
		"proto":  map[string]any{"__proto__": map[string]any{"a": int64(1)}, "constructor": int64(2)},
	}
	for _, target := range Targets {
		t.Run(target.Runtime, func(t *testing.T) {
			b := Open(t, target, sandbox.Options{})
			for name, want := range values {
				if diff := cmp.Diff(want, Got[any](t, b.Run(In("s", 1, b.Call("main", want))))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if target.Runtime == sandbox.RuntimeNative {
				return // takes its arguments one by one, and floats have another type
			}
			if diff := cmp.Diff([]any{int64(1), "two"}, Got[any](t, b.Run(In("s", 1, b.Call("main", 1, "two"))))); diff != "" {
				t.Errorf("two arguments (-want +got):\n%s", diff)
			}
			want := any(7.0)
			if target.Runtime == sandbox.RuntimeNode {
				want = int64(7) // JavaScript has no other 7
			}
			if got := Got[any](t, b.Run(In("s", 1, b.Call("main", 7.0)))); got != want {
				t.Errorf("7.0 is %T %v, want %T %v", got, got, want, want)
			}
		})
	}
}

// The results include values that are more than plain data.
func TestResultsEqualTheJSONOfTheirLanguages(t *testing.T) {
	for runtime, want := range map[string]map[string]any{
		sandbox.RuntimeNode: {
			"date": "1970-01-01T00:00:00.000Z", "nan": nil, "hole": []any{nil, int64(1), nil}, "map": map[string]any{},
			"boxed": []any{int64(1), "s", false}, "big": int64(math.MaxInt64), "surrogate": "a\ufffd", "minus_zero": int64(0),
			"power": 1e21,
		},
		sandbox.RuntimePython: {
			"tuple": []any{int64(1), int64(2)}, "keys": map[string]any{"1": "a", "false": "b", "null": "c", "2.5": "d"},
			"enum": []any{int64(3), "red"},
		},
	} {
		for _, target := range Targets {
			if target.Runtime != runtime {
				continue
			}
			t.Run(runtime, func(t *testing.T) {
				b := Open(t, target, sandbox.Options{})
				if diff := cmp.Diff(any(want), Got[any](t, b.Run(In("s", 1, b.Call("odd_values"))))); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				for kind, class := range map[string]string{
					"integer": "integer_overflow", "circle": "payload_too_deep", "large": "payload_too_large",
				} {
					e := WantType(t, b.Fail(In("s", 1, b.Call("unstorable", kind))), sandbox.UserError)
					if e.Class != class || e.Retryable {
						t.Errorf("%s: %s, retryable %v: %v; want %s", kind, e.Class, e.Retryable, e, class)
					}
				}
			})
		}
	}
}

// TestAPayloadIsHeldOnceInTheWorker counts the allocations of a call in the worker at two sizes. A large call allocates
// only its result in addition to a small one: the payload is neither decoded nor copied.
func TestAPayloadIsHeldOnceInTheWorker(t *testing.T) {
	if Race {
		t.Skip("the race detector allocates for itself")
	}
	collecting := debug.SetGCPercent(-1) // otherwise a collection could free memory that is kept for the next payload
	defer debug.SetGCPercent(collecting)
	for _, target := range Targets[1:] {
		t.Run(target.Runtime, func(t *testing.T) {
			b := Open(t, target, sandbox.Options{Blank: -1})
			type cost struct{ size, bytes, pieces int }
			measure := func(value any) (c cost) {
				call := In("s", 1, b.Call("main", value))
				for range 3 {
					c.size = len(b.Run(call).Output)
				}
				const calls = 10
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range calls {
					b.Run(call)
				}
				runtime.ReadMemStats(&after)
				c.bytes = int(after.TotalAlloc-before.TotalAlloc) / calls //nolint:gosec // of a test
				c.pieces = int(after.Mallocs-before.Mallocs) / calls      //nolint:gosec // of a test
				runtime.GC()
				return c
			}
			records := func(size int) any {
				all := make([]any, size/170)
				for i := range all {
					all[i] = record(i)
				}
				return all
			}
			warm := measure("x")
			if warm.pieces > 18 || warm.bytes > 2<<10 { // the header and the result
				t.Errorf("a call of one letter takes %d allocations of %d bytes", warm.pieces, warm.bytes)
			}
			for name, value := range map[string]any{
				"text 64K": strings.Repeat("x", 64<<10), "text 1M": strings.Repeat("x", 1<<20),
				"records 64K": records(64 << 10), "records 1M": records(1 << 20),
			} {
				got := measure(value)
				t.Logf("%s: %+v, of a small one %+v", name, got, warm)
				if most := got.size + got.size/8 + 16<<10; got.bytes > most {
					t.Errorf("%s: %d bytes for a result of %d, at most %d", name, got.bytes, got.size, most)
				}
				if got.pieces > warm.pieces+24 {
					t.Errorf("%s: %d allocations, of a small one %d", name, got.pieces, warm.pieces)
				}
			}
		})
	}
}
