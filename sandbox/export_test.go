package sandbox

import (
	"time"

	"github.com/sojourn-run/sojourn/sandbox/egress"
	"github.com/sojourn-run/sojourn/sandbox/wall"
)

// WithPatience shortens how long a frame may take.
func (o Options) WithPatience(d time.Duration) Options {
	o.patience = d
	return o
}

// WithResolver has names looked up there.
func (o Options) WithResolver(r egress.Resolver) Options {
	o.resolver = r
	return o
}

// WithKernel makes the pool believe that the kernel offers that.
func (o Options) WithKernel(k wall.Kernel) Options {
	o.kernel = &k
	return o
}
