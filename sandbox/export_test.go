package sandbox

import (
	"time"

	"github.com/sojourn-run/sojourn/sandbox/wall"
)

// WithPatience shortens how long a frame may take.
func (o Options) WithPatience(d time.Duration) Options {
	o.patience = d
	return o
}

// WithKernel makes the pool believe that the kernel offers that.
func (o Options) WithKernel(k wall.Kernel) Options {
	o.kernel = &k
	return o
}
