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
	return b.commitSignal(ctx, in, nil)
}

func (b *Broker) commitSignal(
	ctx context.Context, in protocol.SignalRequest, wrap transactionWrapper,
) (protocol.CommandReceipt, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.CommandReceipt{}, err
	}
	value, err := Arguments("input", in.Input)
	if err != nil {
		return protocol.CommandReceipt{}, err
	}
	size := len(value) + in.Headers.Size()
	if err := b.delayLargePayload(ctx, transaction.NamespaceOrDefault(in.Namespace), size); err != nil {
		return protocol.CommandReceipt{}, err
	}
	learned := !b.opt.Shared
	may := func(run *engine.Run) error { return b.checkSignal(&run.Head, in.SignalName, learned) }
	order := externalCommand{
		target: in.Target, requestID: in.RequestID, quotas: true, may: may, wrap: wrap,
		what: "signal " + in.SignalName + " " + comparableBlob(value),
		input: engine.SignalRun{
			Name: in.SignalName, Value: value, RequestID: in.RequestID, Identity: in.Identity, Headers: in.Headers,
			Trace: in.Trace,
		},
		fill: func(r *protocol.CommandReceipt) { r.SignalName = in.SignalName },
	}
	for {
		r, err := b.command(ctx, order)
		var u *notValidated
		if !errors.As(err, &u) {
			return r, b.countQuotaRefusal(transaction.NamespaceOrDefault(in.Namespace), "signal", err)
		}
		// One read is sufficient. If no worker in the store declares the signals either, the signal is accepted.
		learned = true
		if err := b.loadSignalWorkers(ctx, &u.head); err != nil {
			return protocol.CommandReceipt{}, err
		}
	}
}

// checkSignal refuses a signal that the type of a run does not declare. If this app knows no worker of the type, the
// error is *notValidated, unless learned: the workers were read from the store.
func (b *Broker) checkSignal(run *engine.Head, name string, learned bool) error {
	if !run.Status.Open() || !run.HasCode() { // the decision refuses it
		return nil
	}
	names, known := b.workers.Signals(engine.QueueKey{Namespace: run.Namespace, Name: run.Queue}, run.Type)
	switch {
	case len(names) > 0 && !slices.Contains(names, name):
		return protocol.Refuse(protocol.ReasonUnknownSignal, "workflow type %s has no signal %s", run.Type, name).
			With("signal_name", name)
	case !known && !learned:
		return &notValidated{head: *run}
	}
	return nil
}

// loadSignalWorkers reads the workers of a run's queue, unless this app read them a moment ago.
func (b *Broker) loadSignalWorkers(ctx context.Context, run *engine.Head) error {
	q := engine.QueueKey{Namespace: run.Namespace, Name: run.Queue}
	if !b.workers.ShouldReadWorkers(q, time.Now()) {
		return nil
	}
	return b.loadWorkers(ctx, q.Namespace, q.Name)
}
