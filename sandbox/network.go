package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// Egress is the network access of code in executors.
type Egress string

// These are the values of Egress.
const (
	EgressNone     Egress = "none"     // nothing
	EgressFiltered Egress = "filtered" // public addresses and listed ones, through a proxy of the worker
	EgressOpen     Egress = "open"     // everything that the worker can reach
)

// These are the mechanisms that enforce egress.
const (
	byLandlock = "landlock" // only TCP connections to the proxy's port
	bySeccomp  = "seccomp"  // no network sockets; the shims use the proxy's Unix socket
)

// way is an egress with the mechanism that enforces it.
type way struct {
	egress Egress
	by     string // mechanism; empty if none is needed
}

// ways returns the mechanisms of a kernel for the requested egress, in order of preference.
func (o Options) ways(k lockdown.Kernel) []way {
	none, open := way{EgressNone, bySeccomp}, way{egress: EgressOpen}
	filtered := []way{{EgressFiltered, bySeccomp}}
	if k.HoldsPorts() {
		filtered = []way{{EgressFiltered, byLandlock}, {EgressFiltered, bySeccomp}}
	}
	switch o.Egress {
	case EgressNone:
		return []way{none}
	case EgressOpen:
		return []way{open}
	case EgressFiltered:
		return filtered
	}
	return append(filtered, open)
}

// addTo adds the mechanism to rules; port is the proxy's port.
func (w way) addTo(r *lockdown.Rules, port int) {
	r.Inet = w.egress == EgressOpen || w.by == byLandlock
	r.Ports = nil
	if w.by == byLandlock {
		r.Ports = []uint16{uint16(port)} //nolint:gosec // a port
	}
}

// findEgress returns the first mechanism that a probe verified, and the outcome of that probe.
func (p *Pool) findEgress(offered lockdown.Kernel) (way, outcome, error) {
	var failed error
	for _, w := range p.opt.ways(offered) {
		found, err := p.cachedProbe(&offered, w)
		if err == nil {
			if err = found.confined(); err != nil { // the probe failed for a reason other than the network access
				return w, found, err
			}
			if w.egress == EgressOpen || !found[tryNetwork] {
				return w, found, nil
			}
			err = errors.New("a test connection bypassed the proxy")
		}
		failed = err
	}
	return way{}, nil, failed
}

// serve starts the proxy if the mechanism needs one.
func (p *Pool) serve(w way) error {
	o := egress.Options{
		Network: "tcp", Address: "127.0.0.1:0", Allow: p.opt.EgressAllow, Closed: p.opt.Apps, Resolver: p.opt.resolver,
		Logger: p.opt.Logger,
	}
	if w.by == bySeccomp {
		var err error
		if o.Network, o.Address, err = p.socketPath(); err != nil {
			return fmt.Errorf("egress proxy: %w", err)
		}
	}
	proxy, err := egress.Listen(o)
	if err != nil {
		return err
	}
	p.proxy = proxy
	if w.by == bySeccomp {
		// All users may connect, since executors may run under other users than the worker; the proxy checks
		// credentials.
		return os.Chmod(o.Address, 0o666) //nolint:gosec // see above
	}
	return nil
}

// maxSocketPath is the maximum length of the path of a Unix socket.
const maxSocketPath = 100

// socketPath returns the path of the proxy's socket: in the pool's folder, unless that path is too long.
func (p *Pool) socketPath() (network, path string, err error) {
	if path = filepath.Join(p.dir, "egress"); len(path) <= maxSocketPath {
		return "unix", path, nil
	}
	if p.socketDir, err = os.MkdirTemp("", "sojourn-"); err != nil {
		return "", "", err
	}
	return "unix", filepath.Join(p.socketDir, "egress"), os.Chmod(p.socketDir, 0o711) //nolint:gosec // for other users
}

// proxyEnvironment returns the proxy variables of an executor with this pass. The proxy decides about all connections,
// so NO_PROXY is empty.
func proxyEnvironment(proxy *egress.Proxy, pass *egress.Pass) []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		env = append(env, name+"="+pass.URL())
	}
	env = append(env, "NO_PROXY=", "no_proxy=")
	if proxy.Port() == 0 {
		env = append(env, "SOJOURN_EGRESS_SOCKET="+proxy.Addr().String())
	}
	return env
}
