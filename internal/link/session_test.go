package link_test

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestEndOfASessionReachesItsWorker(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	for name, carrier := range map[string]link.Carrier{
		"socket": &link.Socket{URLs: []string{a.URL()}}, "local": link.Local{Join: a.Connections().Join},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan protocol.SessionNotice, 10)
			l := start(t, link.Options{
				Carrier: carrier, Incarnation: name, OnSession: func(n protocol.SessionNotice) { got <- n },
				Register: func() protocol.RegisterRequest {
					return protocol.RegisterRequest{
						ActivityTypes: []string{"work"}, TaskQueues: []string{"default"}, Capabilities: []string{"worker_sessions"},
					}
				},
			})
			l.ready()
			ctx, cancel := context.WithTimeout(t.Context(), ceiling)
			defer cancel()
			made, err := a.Broker().CreateSession(
				ctx, protocol.SessionCreate{WorkerID: "w", SessionOptions: protocol.SessionOptions{SessionID: name}},
			)
			if err != nil {
				t.Fatal(err)
			}
			_, err = a.Broker().OperateSession(ctx, protocol.SessionOperation{SessionID: name, Verb: "close", Identity: "eve"})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case n := <-got:
				if n.SessionID != name || n.Epoch != made.Session.Epoch || n.Reason != "closed by eve" {
					t.Errorf("got %+v", n)
				}
			case <-time.After(ceiling):
				t.Error("the worker was not told")
			}
			_ = l.end()
		})
	}
}
