package broker_test

import (
	"errors"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Settings of 0 are quotas, not absent settings.
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
