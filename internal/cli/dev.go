package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/examples/look"
	"github.com/sojourn-run/sojourn/examples/research"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

func (p *program) devCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dev", Short: "Run app and worker on this machine without tokens, and start sample runs", Args: noArgs,
		Long: "Run app and worker in one process on this machine without tokens, and start four sample runs: one that completes, one\n" +
			"that waits for a signal, one whose activity is retried, and one that holds a session.\n" +
			"Data in the data directory is kept: interrupted runs continue.",
		RunE: func(c *cobra.Command, _ []string) error {
			held := &heldLog{to: p.err}
			defer held.release()
			p.err = held
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			return p.dev(c.Context(), s, held)
		},
	}
	config.Register(c.Flags(), config.Dev)
	return c
}

// dev starts both roles, prints five lines, two more with a folder of handlers, and the ready line. It starts the
// additional sample runs and waits for them.
func (p *program) dev(ctx context.Context, s *settings, held *heldLog) error {
	// After this time, show log lines even while dev waits for a database.
	patience := time.AfterFunc(maxLogDelay, held.release)
	defer patience.Stop()
	n, err := p.start(ctx, s)
	if err != nil {
		return err
	}
	base := localURL(n.app.URL())
	lines := [][2]string{
		{"release", fmt.Sprintf("%s (from %s)", s.Release, s.ReleaseFrom)},
		{"database", s.database()},
		{"dashboard", base + "/"},
		{"API", fmt.Sprintf("%s/api, socket %s", base, base+protocol.ChannelPath)},
		{"worker", describeWorker(n.worker)},
	}
	if s.Handlers != "" {
		lines = append(lines, [2]string{"handlers", n.worker.Handlers().String()})
	}
	if text := n.worker.Isolation(); text != "" {
		lines = append(lines, [2]string{"isolation", text})
	}
	for _, l := range lines {
		fmt.Fprintf(p.out, "%-10s %s\n", l[0], l[1])
	}
	if err := n.worker.WaitReady(n.ctx); err != nil {
		n.cancel(err)
		return errors.Join(err, n.wait())
	}
	if _, ok := p.registry.FindWorkflow(research.Workflow); !ok { // a binary of a user's own has no sample to run
		fmt.Fprintf(p.out, "ready %s\n", base)
		held.release()
		return n.wait()
	}
	run, err := newest(n.ctx, n.app.Broker(), s.Namespace, "sample", research.Workflow, research.Question{
		Text: "What do the largest whales eat, and how do they find it?", Near: 3,
	})
	for _, conflict := range [][3]string{
		{"sample-approval", look.Approval, "order 17"},
		{"sample-retry", look.Retry, "12 Elm Street"},
		{"sample-session", look.Session, "sojourn dev"},
	} {
		if err == nil {
			_, err = newest(n.ctx, n.app.Broker(), s.Namespace, conflict[0], conflict[1], conflict[2])
		}
	}
	if err != nil {
		n.cancel(err)
		return errors.Join(err, n.wait())
	}
	fmt.Fprintf(p.out, "ready %s %s/runs/%s\n", base, base, url.PathEscape(run.RunID))
	held.release()
	if err := approve(n.ctx, n.app.Server, run); err != nil && n.ctx.Err() == nil {
		s.Log.Error().Err(err).Str("run_id", run.RunID).Msg("sample workflow failed")
	}
	return n.wait()
}

// describeWorker describes the worker and its slots in one line.
func describeWorker(w *worker.Worker) string {
	workflows, activities := w.Slots()
	return fmt.Sprintf("%s, %d activity slots, %d workflow slots", w.ID(), activities, workflows)
}

func (s *settings) database() string {
	if s.DatabaseURLFile != "" {
		return "the URL in " + s.DatabaseURLFile
	}
	for _, src := range s.Sources {
		if src.Name == "database-url" {
			return src.Value
		}
	}
	return ""
}

// newest returns the newest run of a sample: the open one, else a new one under the next free ID.
func newest(
	ctx context.Context, b *broker.Broker, namespace, name, workflow string, arg any,
) (protocol.StartResponse, error) {
	args, err := payload.EncodeArgs(arg)
	if err != nil {
		return protocol.StartResponse{}, err
	}
	input, err := args.MarshalJSON()
	if err != nil {
		return protocol.StartResponse{}, err
	}
	for n := 1; ; n++ {
		id := name
		if n > 1 {
			id = fmt.Sprintf("%s-%d", name, n)
		}
		a, err := b.Start(ctx, protocol.StartRequest{
			Namespace: namespace, WorkflowID: id, WorkflowType: workflow, Input: input, DuplicatePolicy: "use-existing",
			Identity: "sojourn dev",
		})
		if protocol.ReasonOf(err) != protocol.ReasonDuplicateStart {
			return a, err
		}
	}
}

// approve waits until the sample waits for its signal, and sends the signal once.
func approve(ctx context.Context, p *server.Server, run protocol.StartResponse) error {
	target := protocol.Target{Namespace: run.Namespace, WorkflowID: run.WorkflowID}
	changed, stop := p.Dispatch().WatchRun(run.RunID)
	defer stop()
	for {
		v, err := p.View().Describe(ctx, target)
		if err != nil || v.Terminal {
			return err
		}
		for _, w := range v.Pending.Waits {
			if w.SignalName != research.Approve {
				continue
			}
			_, err := p.Broker().Signal(ctx, protocol.SignalRequest{
				Target: target, SignalName: research.Approve, Input: []byte(`["sojourn dev"]`), RequestID: run.RunID + "-approve",
				Identity: "sojourn dev",
			})
			return err
		}
		select {
		case <-changed:
		case <-time.After(time.Minute): // a hint may be lost
		case <-ctx.Done():
			return nil
		}
	}
}

// maxLogDelay is the maximum time for which log lines are delayed.
const maxLogDelay = 3 * time.Second

// heldLog delays log lines until it is released, so that dev's own lines are printed first.
type heldLog struct {
	to   io.Writer
	mu   sync.Mutex
	kept []byte // log lines until open is set
	open bool
}

func (h *heldLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		return h.to.Write(p)
	}
	h.kept = append(h.kept, p...)
	return len(p), nil
}

// Unwrap returns the underlying writer.
func (h *heldLog) Unwrap() io.Writer { return h.to }

func (h *heldLog) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		h.open = true
		_, _ = h.to.Write(h.kept) // errors are ignored, as in the log
		h.kept = nil
	}
}
