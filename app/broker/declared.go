package broker

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// declarations are what the living workers of a namespace said their workflow types have.
func (b *Broker) declarations(namespace string) engine.Declarations {
	now := time.Now()
	var living []*engine.Worker
	for _, h := range b.workers.all(namespace) {
		if b.alive(h, now) {
			living = append(living, h.worker)
		}
	}
	return engine.Declared(living)
}
