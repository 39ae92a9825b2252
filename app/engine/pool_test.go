package engine_test

import (
	"errors"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestNoWorkerRunsABorrow(t *testing.T) {
	for _, w := range []*engine.Worker{
		{AnyActivity: true}, {ActivityTypes: []string{protocol.BorrowActivity}},
	} {
		if w.Runs(protocol.KindActivity, protocol.BorrowActivity) {
			t.Errorf("%+v runs it", w)
		}
	}
}

// A command that borrows a member of a pool names the pool and nothing that concerns workers.
func TestBorrowCommands(t *testing.T) {
	valid := func() *protocol.Command {
		return &protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: protocol.BorrowActivity, Borrow: &history.Borrow{Pool: "p"},
		}
	}
	at := func(member string) string { return member }
	if err := protocol.CheckCommand(valid(), at); err != nil {
		t.Error(err)
	}
	for member, change := range map[string]func(*protocol.Command){
		"borrow":              func(c *protocol.Command) { c.Borrow = nil },
		"activity_type":       func(c *protocol.Command) { c.ActivityType = "other" },
		"session_id":          func(c *protocol.Command) { c.SessionID = "s" },
		"queue":               func(c *protocol.Command) { c.Queue = "q" },
		"requirements":        func(c *protocol.Command) { c.Requirements = []string{"gpu"} },
		"borrow.pool":         func(c *protocol.Command) { c.Borrow.Pool = "a b" },
		"borrow.loan_seconds": func(c *protocol.Command) { c.Borrow.Loan = -1 },
	} {
		c := valid()
		change(c)
		err := protocol.CheckCommand(c, at)
		if refusal, ok := errors.AsType[*protocol.Error](err); !ok || len(refusal.Fields[member]) != 1 {
			t.Errorf("%s: %v", member, err)
		}
	}
}
