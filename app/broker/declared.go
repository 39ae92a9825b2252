package broker

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// declarations are what the living workers of a namespace said their workflow types have.
func (b *Broker) declarations(namespace string) engine.Declarations {
	now := time.Now()
	var living []*engine.Worker
	for _, h := range b.workers.All(namespace) {
		if b.workers.Alive(h, now) {
			living = append(living, h.Worker)
		}
	}
	return engine.Declared(living)
}
