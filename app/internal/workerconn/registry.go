// Package workerconn is the registry of connected workers, over a socket or in this process. It sends them notices.
//
// A [Conn] calls the methods of [protocol.WorkerVerbs] for one worker and adds the state of the connection: the
// worker's identity, whether its token is still valid, its release, its process, and whether it drains. A notice
// reports a change at once that the worker would otherwise receive with the response to its next heartbeat.
//
// Transports only encode requests: package channel serves sockets; calls within a process need no encoding.
package workerconn

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Workers checks access to workers.
type Workers interface {
	// Gated reports whether the release gate holds a worker.
	Gated(namespace, worker string) bool
	// CheckVisible refuses the caller in ctx if its token is not allowed to act for the worker of that ID.
	CheckVisible(ctx context.Context, namespace, worker string) error
}

// Options of a registry. The comment of a field contains the default of its zero value.
type Options struct {
	Release string  // release of the app, sent to workers
	Workers Workers // nil: every caller may act for every worker
	// Revalidate refuses a principal whose rights were revoked after it connected; nil: none is refused. It is called
	// with every request, so it must be fast.
	Revalidate func(ctx context.Context, principal any) error
	// Allow checks whether a worker's principal is allowed to serve these task queues of a namespace; nil: all are
	// allowed.
	Allow func(principal any, namespace string, queues []string) error
	// Settings returns the settings that workers receive, without the release; nil: the defaults.
	Settings func() protocol.WorkerSettings
	// Fleet returns the settings that operators set for the workers of a namespace, and their revision; nil: none.
	Fleet func(namespace string) (protocol.FleetSettings, int64)
	// Hub publishes cancellations and ends of sessions; nil: none.
	Hub *dispatch.Hub
	Log zerolog.Logger
}

// Registry is the registry of connected workers. New creates it, Close ends it.
type Registry struct {
	verbs protocol.WorkerVerbs
	opt   Options
	log   zerolog.Logger

	stale, unconfirmed atomic.Int64

	life  context.Context // context of the notices
	end   context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	conns   map[string]map[*Conn]protocol.WorkerNotices
	closing bool
}

// Stats are counts since the start.
type Stats struct {
	StaleCompletions int64 // outcomes that came too late and changed nothing
	Unconfirmed      int64 // notices that a worker did not confirm in time
}

// New returns a registry that passes the workers' calls to verbs, and sends workers the cancellations and ends of
// sessions that o.Hub publishes.
func New(verbs protocol.WorkerVerbs, o Options) *Registry {
	s := &Registry{verbs: verbs, opt: o, log: o.Log, conns: map[string]map[*Conn]protocol.WorkerNotices{}}
	s.life, s.end = context.WithCancel(context.Background())
	if o.Hub != nil {
		s.tasks.Go(s.sendCancels)
	}
	return s
}

// StopNotices rejects new connections and sends no more notices. Connected workers may still send requests.
func (s *Registry) StopNotices() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.end()
}

// Close stops notices and waits for the goroutines of the registry.
func (s *Registry) Close(ctx context.Context) error {
	s.StopNotices()
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stats returns the counts.
func (s *Registry) Stats() Stats {
	return Stats{StaleCompletions: s.stale.Load(), Unconfirmed: s.unconfirmed.Load()}
}

var errClosing = errors.New("the app is closing")

// Join adds the worker of this process to the registry until leave is called. Its principal is the process itself.
func (s *Registry) Join(
	hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (conn protocol.WorkerConnection, deregister func(), err error) {
	p, err := s.NewConn(hello, nil)
	if err != nil {
		return nil, nil, err
	}
	if deregister, err = s.Add(p, notices); err != nil {
		return nil, nil, err
	}
	return p, deregister, nil
}

// Add adds an admitted worker to the registry, so that the worker receives notices until leave is called.
func (s *Registry) Add(p *Conn, notices protocol.WorkerNotices) (deregister func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, errClosing
	}
	if s.conns[p.WorkerID] == nil {
		s.conns[p.WorkerID] = map[*Conn]protocol.WorkerNotices{}
	}
	s.conns[p.WorkerID][p] = notices
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.conns[p.WorkerID], p); len(s.conns[p.WorkerID]) == 0 {
			delete(s.conns, p.WorkerID)
		}
	}, nil
}

// connectionsOf returns the connections of a worker ID, or all connections if the ID is empty.
func (s *Registry) connectionsOf(worker string) map[*Conn]protocol.WorkerNotices {
	s.mu.Lock()
	defer s.mu.Unlock()
	if worker != "" {
		return maps.Clone(s.conns[worker])
	}
	all := map[*Conn]protocol.WorkerNotices{}
	for _, of := range s.conns {
		maps.Copy(all, of)
	}
	return all
}
