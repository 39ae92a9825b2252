package broker_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A quota that is set to 0 admits nothing; it does not count as unset.
func TestQuotasOfZeroAdmitNothing(t *testing.T) {
	inBubble(t, "all quotas", func(o *harness) {
		a, _ := o.appWith(broker.Options{Release: "test", App: "a", Quotas: &engine.QuotaLimits{}, Log: apptest.Log(o.t)})
		_, err := a.Start(o.t.Context(), protocol.StartRequest{
			Namespace: "default", WorkflowID: "w", WorkflowType: "flow",
		})
		var x *protocol.Error
		if !errors.As(err, &x) || x.Reason != protocol.ReasonQuotaExceeded || x.Details["limit"] != int64(0) {
			o.t.Errorf("a start: %v, want quota_exceeded", err)
		}
	})
}

// The ledger, and so the metrics, forget a deleted namespace, although its removal changes usage that must be
// exchanged.
func TestADeletedNamespaceHasNoUsage(t *testing.T) {
	inBubble(t, "delete", func(o *harness) {
		a, _ := o.app("a", false)
		if _, err := a.CreateNamespace(o.t.Context(), protocol.NamespaceRequest{Name: "gone"}); err != nil {
			o.t.Fatal(err)
		}
		if _, err := a.DeleteNamespace(o.t.Context(), "gone"); err != nil {
			o.t.Fatal(err)
		}
		// the same usage as if another app had deleted the namespace
		a.store.Quotas().Add("gone", engine.Usage{OpenRuns: -1})
		time.Sleep(5 * time.Second)
		if names := a.store.Quotas().Namespaces(); slices.Contains(names, "gone") {
			o.t.Errorf("namespaces with usage: %v", names)
		}
	})
}
