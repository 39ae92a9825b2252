// Package examples registers the examples that the stock binary contains.
package examples

import (
	curlworker "github.com/sojourn-run/sojourn/examples/curl-worker"
	"github.com/sojourn-run/sojourn/examples/handlers"
	"github.com/sojourn-run/sojourn/examples/look"
	"github.com/sojourn-run/sojourn/examples/research"
	"github.com/sojourn-run/sojourn/examples/sessions/conversation"
	"github.com/sojourn-run/sojourn/examples/sessions/device"
	"github.com/sojourn-run/sojourn/examples/sessions/keepalive"
	"github.com/sojourn-run/sojourn/examples/sessions/model"
	"github.com/sojourn-run/sojourn/examples/sessions/pool"
	"github.com/sojourn-run/sojourn/examples/sessions/rebuild"
	"github.com/sojourn-run/sojourn/examples/sessions/tenant"
	"github.com/sojourn-run/sojourn/examples/tour"
	"github.com/sojourn-run/sojourn/worker"
)

// Register offers every example to a worker. They give way to handlers of a user's that have their names.
func Register(r *worker.Registry) { r.Examples(all) }

func all(r *worker.Registry) {
	for _, register := range []func(*worker.Registry){
		research.Register, conversation.Register, keepalive.Register, rebuild.Register, device.Register, handlers.Register,
		curlworker.Register, tenant.Register, model.Register, pool.Register,
		tour.Register, look.Register,
	} {
		register(r)
	}
}
