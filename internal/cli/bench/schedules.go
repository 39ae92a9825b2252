package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// day is the interval of the schedules, so that each fires once in a measurement.
const day = 24 * time.Hour

// dueAtOnce creates schedules that are due in the same second, and measures the time from that second to the start of
// each workflow. No worker runs these workflows.
func dueAtOnce(ctx context.Context, n *node, ops int) (sample, error) {
	name := "due-" + ulid.Make().String()
	began := time.Now()
	// Estimate the time to create all schedules as twice the time that the first few need, so that all exist before
	// they are due, even on a slow disk.
	trial := min(ops, 200)
	create := func(from, to int, due time.Time) error {
		next := make(chan int, to-from)
		for i := from; i < to; i++ {
			next <- i
		}
		_, err := runMany(to-from, inFlight, func() error {
			return n.dailyAt(ctx, fmt.Sprint(name, "-", <-next), name, due)
		})
		return err
	}
	if err := create(ops, ops+trial, began.Add(day/2)); err != nil {
		return sample{}, err
	}
	long := 3*time.Second + 2*time.Since(began)*time.Duration(ops)/time.Duration(trial)
	due := time.Now().Add(long).Truncate(time.Second)
	w := n.app.Dispatch().Watch(dispatch.TopicRuns)
	defer w.Close()
	if err := create(0, ops, due); err != nil {
		return sample{}, err
	}
	if time.Now().After(due) {
		return sample{}, fmt.Errorf("%d schedules were not created within %s", ops, long)
	}
	s := sample{each: make([]time.Duration, 0, ops)}
	seen := map[string]bool{}
	timeout := time.After(time.Until(due) + 5*time.Minute)
	for len(seen) < ops {
		select {
		case <-w.C:
		case <-timeout:
			return s, fmt.Errorf("%d of %d schedules started within five minutes", len(seen), ops)
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
		changed, overflow := w.Take()
		if overflow {
			return s, errors.New("the list of changed runs overflowed: too many runs started at once")
		}
		for _, r := range changed.Runs {
			if strings.HasPrefix(r.WorkflowID, name) && !seen[r.WorkflowID] {
				seen[r.WorkflowID] = true
				s.each = append(s.each, time.Since(due))
			}
		}
	}
	s.elapsed = time.Since(due)
	return s, nil
}

// dailyAt creates a schedule that starts a workflow at this second of every day.
func (n *node) dailyAt(ctx context.Context, id, queue string, due time.Time) error {
	in, err := input()
	if err != nil {
		return err
	}
	_, err = n.app.Broker().CreateSchedule(ctx, protocol.ScheduleRequest{
		ID: id,
		Spec: &protocol.ScheduleSpec{Intervals: []protocol.ScheduleInterval{{
			Every: "PT24H", Offset: fmt.Sprintf("PT%dS", due.Unix()%int64(day/time.Second)),
		}}},
		Action: &protocol.ScheduleAction{WorkflowType: "five", TaskQueue: queue, Input: in},
	})
	return err
}
