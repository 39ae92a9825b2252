package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/examples/research"
	"github.com/sojourn-run/sojourn/shared/config"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

func (p *program) devCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dev", Short: "Run app and worker on this machine, without tokens, and a sample run to look at", Args: noArgs,
		Long: "Run app and worker in one process on this machine, without tokens, and start a sample run to look at.\n" +
			"What is in the data directory stays: a run that was cut off goes on.",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			return p.dev(c.Context(), s)
		},
	}
	config.Register(c.Flags(), config.Dev)
	return c
}

// dev starts both roles, prints five lines and the ready line, and sees the sample through.
func (p *program) dev(ctx context.Context, s *settings) error {
	n, err := p.start(ctx, s)
	if err != nil {
		return err
	}
	base := localURL(n.app.URL())
	for _, l := range [][2]string{
		{"release", fmt.Sprintf("%s (from %s)", s.Release, s.ReleaseFrom)},
		{"database", s.database()},
		{"dashboard", base + "/"},
		{"API", fmt.Sprintf("%s/api, socket %s", base, base+protocol.ChannelPath)},
		{"worker", describeWorker(n.worker)},
	} {
		fmt.Fprintf(p.out, "%-10s %s\n", l[0], l[1])
	}
	if err := n.worker.WaitReady(n.ctx); err != nil {
		n.cancel(err)
		return errors.Join(err, n.wait())
	}
	if _, ok := p.registry.FindWorkflow(research.Workflow); !ok { // a binary of a user's own has no sample to run
		fmt.Fprintf(p.out, "ready %s\n", base)
		return n.wait()
	}
	run, err := sample(n.ctx, n.app.Broker(), s.Namespace)
	if err != nil {
		n.cancel(err)
		return errors.Join(err, n.wait())
	}
	fmt.Fprintf(p.out, "ready %s %s/runs/%s\n", base, base, url.PathEscape(run.RunID))
	if err := approve(n.ctx, n.app.Broker(), run); err != nil && n.ctx.Err() == nil {
		s.Log.Error().Err(err).Str("run_id", run.RunID).Msg("see the sample through")
	}
	return n.wait()
}

// describeWorker is the worker with its slots and its sandbox, in one line.
func describeWorker(w *worker.Worker) string {
	workflows, activities := w.Slots()
	text := fmt.Sprintf("%s, %d activity slots, %d workflow slots, ", w.ID(), activities, workflows)
	if r, ok := w.Sandbox(); ok {
		return text + fmt.Sprintf("sandbox %s", r.Level)
	}
	return text + "no sandbox"
}

func (s *settings) database() string {
	for _, src := range s.Sources {
		if src.Name == "database-url" {
			return src.Value
		}
	}
	return ""
}

// sample is the newest run of the sample: the one that is open, else a new one under the next free id.
func sample(ctx context.Context, b *broker.Broker, namespace string) (protocol.StartAnswer, error) {
	args, err := payload.EncodeArgs(research.Question{
		Text: "What do the largest whales eat, and how do they find it?", Near: 3,
	})
	if err != nil {
		return protocol.StartAnswer{}, err
	}
	input, err := args.MarshalJSON()
	if err != nil {
		return protocol.StartAnswer{}, err
	}
	for n := 1; ; n++ {
		id := "sample"
		if n > 1 {
			id = fmt.Sprintf("sample-%d", n)
		}
		a, err := b.Start(ctx, protocol.StartRequest{
			Namespace: namespace, WorkflowID: id, WorkflowType: research.Workflow, Input: input, DuplicatePolicy: "use-existing",
			Identity: "sojourn dev",
		})
		if protocol.ReasonOf(err) != protocol.ReasonDuplicateStart {
			return a, err
		}
	}
}

// approve sends the signal the sample waits for, once, when it waits for it.
func approve(ctx context.Context, b *broker.Broker, run protocol.StartAnswer) error {
	target := protocol.Target{Namespace: run.Namespace, WorkflowID: run.WorkflowID}
	changed, stop := b.Dispatch().WatchRun(run.RunID)
	defer stop()
	for {
		v, err := b.Describe(ctx, target)
		if err != nil || v.Terminal {
			return err
		}
		for _, w := range v.Pending.Waits {
			if w.SignalName != research.Approve {
				continue
			}
			_, err := b.Signal(ctx, protocol.SignalRequest{
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
