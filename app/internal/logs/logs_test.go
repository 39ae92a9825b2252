package logs_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/logs"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A store may call a decision function several times before it commits. Each result has the log lines once, after the
// other writes, and a rejected outcome has none.
func TestAnOutcomeDecidedTwiceHasItsLinesOnce(t *testing.T) {
	part := func(n int64) store.LogBatch {
		return store.LogBatch{
			LogKey: store.LogKey{AttemptKey: store.AttemptKey{Run: "r", Seq: 1, Delivery: 1}, Part: n},
			Lines:  []protocol.LogLine{{Text: "text"}},
		}
	}
	own := make([]store.LogBatch, 1, 8) // the slice has spare capacity that must not be used for the lines
	own[0] = part(1)
	var refused error
	c := logs.AddTo(store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{Logs: own, Answer: transaction.Outcome{Answer: engine.Answer{Refused: refused}}}, nil
	}}, []store.LogBatch{part(2), part(3)})
	decide := func() []store.LogBatch {
		w, err := c.Decide(nil, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return w.Logs
	}
	first := decide()
	for time := range 2 {
		if got, want := decide(), []store.LogBatch{part(1), part(2), part(3)}; !reflect.DeepEqual(got, want) {
			t.Errorf("decided again, time %d: %+v", time, got)
		}
	}
	if len(first) != 3 || len(own) != 1 || own[:2][1].Part != 0 {
		t.Errorf("the first decision has %+v now, what the change stores anyway is %+v", first, own[:2])
	}
	refused = errors.New("it is late, and sets its task free")
	if got := decide(); len(got) != 1 {
		t.Errorf("refused at last: %+v", got)
	}
}
