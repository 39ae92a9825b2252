package membership

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// Declarations of workers about their types count only while the workers are alive.

// Declarations returns what the live workers of a namespace declared for their workflow types.
func (r *Registry) Declarations(namespace string) engine.Declarations {
	now := time.Now()
	var living []*engine.Worker
	for _, h := range r.All(namespace) {
		if r.Alive(h, now) {
			living = append(living, h.Worker)
		}
	}
	return engine.Declared(living)
}
