package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The workers of a type declare its signals. A declaration can reject a signal but is not needed to accept one: a type
// without declarations accepts all signals, and a workflow accepts signals while no worker is alive.

// Signal sends a signal to the current run of a workflow, or to the named run if that run is current. A signal name
// that the workflow type does not declare is rejected, since no code would receive it.
func (b *Broker) Signal(ctx context.Context, in protocol.SignalRequest) (protocol.CommandReceipt, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.CommandReceipt{}, err
	}
	value, err := Arguments("input", in.Input)
	if err != nil {
		return protocol.CommandReceipt{}, err
	}
	if err := b.pace(ctx, transaction.NamespaceOrDefault(in.Namespace), len(value)); err != nil {
		return protocol.CommandReceipt{}, err
	}
	learned := !b.opt.Shared
	may := func(run *engine.Run) error {
		if !run.Status.Open() || !run.HasCode() { // the decision refuses it
			return nil
		}
		names, known := b.workers.Signals(engine.QueueKey{Namespace: run.Namespace, Name: run.Queue}, run.Type)
		switch {
		case len(names) > 0 && !slices.Contains(names, in.SignalName):
			return protocol.Refuse(protocol.ReasonUnknownSignal, "workflow type %s has no signal %s", run.Type, in.SignalName).
				With("signal_name", in.SignalName)
		case !known && !learned:
			return &notValidated{head: run.Head}
		}
		return nil
	}
	order := externalCommand{
		target: in.Target, requestID: in.RequestID, quotas: true, may: may, what: "signal " + in.SignalName + " " + value,
		input: engine.SignalRun{Name: in.SignalName, Value: value, RequestID: in.RequestID, Identity: in.Identity},
		fill:  func(r *protocol.CommandReceipt) { r.SignalName = in.SignalName },
	}
	for {
		r, err := b.command(ctx, order)
		var u *notValidated
		if !errors.As(err, &u) {
			return r, b.countQuotaRefusal(transaction.NamespaceOrDefault(in.Namespace), "signal", err)
		}
		// One read is enough. If the store has no such worker either, the signal is accepted.
		learned = true
		if q := (engine.QueueKey{Namespace: u.head.Namespace, Name: u.head.Queue}); b.workers.ShouldReadWorkers(
			q, time.Now(),
		) {
			if err := b.loadWorkers(ctx, q.Namespace, q.Name); err != nil {
				return protocol.CommandReceipt{}, err
			}
		}
	}
}
