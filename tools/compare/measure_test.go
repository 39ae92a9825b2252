package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The processor time includes the process, its descendants and ended ones, whatever their names, and no other process.
func TestProcessorTimeIsOfAllBelow(t *testing.T) {
	line := func(pid, name, parent, used string) string {
		return pid + " (" + name + ") S " + parent + " 0 0 0 0 0 0 0 0 0 " + used + " 20 0 1 0"
	}
	stats := []string{
		line("10", "root", "1", "1 2 3 4"), line("11", "a) R 1 (", "10", "10 0 0 0"), line("12", "below", "11", "0 0 0 80"),
		line("13", "other", "1", "1000 0 0 0"),
	}
	got, err := cpuAmong(10, stats)
	if err != nil || got != time.Second {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := cpuAmong(14, stats); err == nil {
		t.Error("a process that is not there has used something")
	}
}

func TestManyDoesEachOnceAndEndsAtAFailure(t *testing.T) {
	calls := make(chan struct{}, 100)
	if _, err := many(t.Context(), 20, 7, func(context.Context) error { calls <- struct{}{}; return nil }); err != nil {
		t.Error(err)
	}
	if len(calls) != 20 {
		t.Errorf("%d calls", len(calls))
	}
	broken := errors.New("broken")
	if _, err := many(t.Context(), 20, 7, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// Small rates, such as those of Temporal's development server, are shown with one decimal.
func TestSmallRatesHaveOneDecimal(t *testing.T) {
	for rate, want := range map[float64]string{10.64: "10.6", 99.96: "100.0", 603.4: "603"} {
		if got := rounded(rate); got != want {
			t.Errorf("%v: got %s, want %s", rate, got, want)
		}
	}
}
