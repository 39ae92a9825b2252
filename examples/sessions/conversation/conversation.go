// Package conversation keeps the state of a conversation in one worker's memory by a session ID alone, without starting
// and ending a session. If the state is lost, an activity fails with an error, and the workflow restores the state.
package conversation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example; Say is its signal, with one line; Bye is the line that ends it.
const (
	Workflow = "conversation"
	Say      = "say"
	Bye      = "bye"
)

// Talk is all there is to a conversation, and all that its next run needs.
type Talk struct {
	Session string   `json:"session"` // made by the first run
	Lines   []string `json:"lines"`
	Replies []string `json:"replies"`
	Loads   int      `json:"loads"` // how often the memory had to be filled
	PerRun  int      `json:"per_run"`
	// Patience is the number of seconds for which a line waits for the session's owner, before any worker may receive
	// it; 0: no limit.
	Patience int `json:"patience_seconds,omitempty"`
}

// Register offers the workflow and its activities.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Converse)
	r.Activity("conversation.load", Load)
	r.Activity("conversation.reply", Reply)
}

// Converse replies to every line until a line says bye. It continues as new from time to time, in the same session.
func Converse(ctx workflow.Context, t Talk) (Talk, error) {
	if t.Session == "" {
		t.Session = "conversation-" + workflow.NewID(ctx)
	}
	if t.PerRun <= 0 {
		t.PerRun = 100
	}
	inside := workflow.InSession(workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose:    time.Minute,
		SessionFallback: time.Duration(t.Patience) * time.Second,
	}), t.Session)
	for range t.PerRun {
		line, err := workflow.ReceiveSignal[string](ctx, Say)
		if err != nil || line == Bye {
			return t, err
		}
		if err := turn(inside, &t, line); err != nil {
			return t, err
		}
	}
	return t, workflow.ContinueAsNew(ctx, t)
}

// turn gets a reply. If the worker does not have the conversation's state, at the beginning and after a move, turn
// loads the state first.
func turn(ctx workflow.Context, t *Talk, line string) error {
	reply, err := workflow.Execute[string](ctx, Reply, line)
	for tries := 0; errors.Is(err, workflow.ErrSessionLost) && tries < 3; tries++ {
		t.Loads++
		if err = workflow.ExecuteActivity(ctx, Load, t.Lines).Get(ctx, nil); err == nil {
			reply, err = workflow.Execute[string](ctx, Reply, line)
		}
	}
	t.Lines, t.Replies = append(t.Lines, line), append(t.Replies, reply)
	return err
}

// memory is the session's state; it could also be a model with its cache.
type memory struct {
	mu    sync.Mutex
	heard map[string]int // guarded by mu
}

func (m *memory) hear(line string) (times int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	line = strings.ToLower(line)
	m.heard[line]++
	return m.heard[line]
}

// Load restores the memory from the lines received before.
func Load(ctx context.Context, lines []string) error {
	m := &memory{heard: map[string]int{}}
	for _, l := range lines {
		m.hear(l)
	}
	activity.SessionState(ctx).Set("memory", m)
	return nil
}

// Reply returns how often the session has received a line. Without a memory it fails with activity.ErrSessionLost.
func Reply(ctx context.Context, line string) (string, error) {
	m, err := activity.Get[*memory](ctx, "memory")
	if err != nil {
		return "", err
	}
	if n := m.hear(line); n > 1 {
		return fmt.Sprintf("%q, you said that %d times", line, n), nil
	}
	return fmt.Sprintf("%q, I see", line), nil
}
