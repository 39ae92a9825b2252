package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app delays large payloads of a namespace only while another namespace is active. It never delays the other
// namespace.
func TestLargePayloadsWaitWhileOthersWork(t *testing.T) {
	inBubble(t, "starts, signals, activities", func(o *harness) {
		a, _ := o.app("a", false)
		for _, name := range []string{"flood", "calm"} {
			if _, err := a.CreateNamespace(o.t.Context(), protocol.NamespaceRequest{Name: name}); err != nil {
				o.t.Fatal(err)
			}
		}
		large := json.RawMessage(`["` + strings.Repeat("x", 1_000_000) + `"]`)
		begin := func(namespace, id string, in json.RawMessage) error {
			_, err := a.Start(o.t.Context(), protocol.StartRequest{
				Namespace: namespace, WorkflowID: id, WorkflowType: "flow", Input: in,
			})
			return err
		}
		sends := []func(i int) error{
			func(i int) error { return begin("flood", fmt.Sprint("f-", i), large) },
			func(int) error {
				_, err := a.Signal(o.t.Context(), protocol.SignalRequest{
					Target: protocol.Target{Namespace: "flood", WorkflowID: "f-0"}, SignalName: "s", Input: large,
				})
				return err
			},
			func(i int) error {
				_, err := a.StartActivity(o.t.Context(), protocol.ActivityRequest{
					Namespace: "flood", WorkflowID: fmt.Sprint("a-", i), ActivityType: "step", Input: large,
				})
				return err
			},
		}
		for i := range 12 { // no other namespace is active
			if err := sends[i%len(sends)](i); err != nil {
				o.t.Fatal(err)
			}
		}
		if o.at() > time.Second {
			o.t.Errorf("without another active namespace it took %v", o.at())
		}
		began, waited := time.Now(), time.Duration(0)
		for i := range 24 {
			at := time.Now()
			if err := begin("calm", fmt.Sprint("c-", i), large[:0]); err != nil {
				o.t.Fatal(err)
			}
			waited += time.Since(at)
			if err := sends[i%len(sends)](100 + i); err != nil {
				o.t.Fatal(err)
			}
		}
		if waited > 0 {
			o.t.Errorf("the bystander waited for %v", waited)
		}
		// 24 × 1.27 MiB as base64, less the first 8 MiB, at 2 MiB per second
		if took := time.Since(began); took < 10*time.Second || took > 13*time.Second {
			o.t.Errorf("24 large payloads took %v", took)
		}
	})
}
