package sandbox

import "time"

// WithPatience shortens how long a frame may take.
func (o Options) WithPatience(d time.Duration) Options {
	o.patience = d
	return o
}
