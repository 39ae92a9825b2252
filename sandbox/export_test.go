package sandbox

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// WithPatience shortens the timeout of frames.
func (o Options) WithPatience(d time.Duration) Options {
	o.patience = d
	return o
}

// WithResolver sets the resolver of names.
func (o Options) WithResolver(r egress.Resolver) Options {
	o.resolver = r
	return o
}

// WithKernel makes the pool assume that the kernel offers these mechanisms.
func (o Options) WithKernel(k lockdown.Kernel) Options {
	o.kernel = &k
	return o
}

// WithInstallRetry sets the time after which a failed installation is retried.
func (o Options) WithInstallRetry(d time.Duration) Options {
	o.installRetry = d
	return o
}

// BuiltInRegistries returns the registries that npm or pip use without configuration.
func (p *Pool) BuiltInRegistries(runtime string) []string {
	return p.packages.builtIn(context.Background(), p.languages[runtime], manifest{})
}

// LastWords returns the error lines of an installer's output.
func LastWords(text string) string { return errorLines(text) }

// PackagesDir returns the folder of the packages that handlers need.
func (p *Pool) PackagesDir() string { return p.packages.cache }

// Idle returns the number of idle executors for calls outside sessions.
func (p *Pool) Idle() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.idle {
		n += len(list)
	}
	return n
}

// Age makes the executors that wait that much older.
func (p *Pool) Age(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.idle {
		for _, ex := range list {
			ex.born = ex.born.Add(-by)
		}
	}
}
