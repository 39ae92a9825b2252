package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/internal/filelock"
	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// ErrTooWeak is wrapped by NewPool if the isolation of this machine is below the required minimum.
var ErrTooWeak = errors.New("the available isolation is weaker than required")

// Pool manages executors: one per session and runtime, some for calls outside sessions, and a few prepared ones. It is
// safe for concurrent use.
type Pool struct {
	opt       Options
	report    Report
	languages map[string]*language
	catalog   catalog
	dir       string        // folder of this pool: scratch folders and shims
	lock      *os.File      // marks dir as in use
	users     *users        // users of executors; nil: the worker's
	oneUser   error         // why executors have the worker's user
	groups    *cgroup.Tree  // groups of executors; nil: the worker's
	noGroups  error         // why executors have the worker's group
	proxy     *egress.Proxy // proxy for the network access of executors; nil: other access, or none
	socketDir string        // folder of the proxy's socket, if it needs a separate one
	capacity  int
	fresh     atomic.Bool    // each call outside sessions has a new executor
	memory    int64          // resident bytes of all executors above which idle ones are ended
	starts    chan struct{}  // semaphore: one element for each starting executor
	work      sync.WaitGroup // goroutines of the pool, and executors
	packages  *packages      // packages that handlers need

	// life ends with Close. Work that no call waits for continues until then.
	life    context.Context //nolint:containedctx // of the pool itself
	endLife context.CancelCauseFunc

	mu        sync.Mutex // guards the fields below
	all       map[*executor]struct{}
	relieving bool // something ends executors because memory is scarce
	reserved  int  // number of existing and starting executors
	blanks    map[string][]*executor
	booting   map[string]int // prepared executors that are starting, by runtime
	idle      map[reuse][]*executor
	sessions  map[string]*session
	tombs     map[string]tombstone
	swept     time.Time     // when old tombstones were removed
	stats     Stats         // statistics of ended executors, and all starts
	inflight  int           // number of calls in flight
	quiet     chan struct{} // closed when inflight falls to 0 while draining; nil unless waited for
	draining  bool
	closed    bool
}

// NewPool creates a pool. No executor starts before the first call. NewPool fails if this machine does not support the
// requested level, if a configured interpreter does not exist, or if [Main] was not called.
func NewPool(o Options) (*Pool, error) {
	if !mainRan {
		return nil, errors.New("sandbox.Main must be called first in main: executors are started from this program")
	}
	o = o.withDefaults()
	p := &Pool{
		opt: o, starts: make(
			chan struct{}, runtime.NumCPU(),
		), all: map[*executor]struct{}{}, blanks: map[string][]*executor{},
		booting: map[string]int{}, idle: map[reuse][]*executor{}, sessions: map[string]*session{},
		tombs: map[string]tombstone{}, stats: newStats(),
		catalog: catalog{dir: o.Handlers, known: map[string]*bundle{}},
	}
	p.life, p.endLife = context.WithCancelCause(context.Background())
	// Otherwise a misspelled path would be noticed only by a denied access, much later.
	for _, path := range slices.Concat(o.Read, o.Write) {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("executor-read, executor-write: %w", err)
		}
	}
	for _, text := range o.EgressAllow {
		if _, err := egress.ParseEntry(text); err != nil {
			return nil, fmt.Errorf("egress-allow: %w", err)
		}
	}
	hardened := harden()
	found, err := programs(o)
	if err != nil {
		return nil, err
	}
	if p.users, p.oneUser = usersOf(o, found); p.oneUser != nil && o.Users != "" && o.Users != UsersNone {
		return nil, fmt.Errorf("executors cannot have separate users: %w: %w", p.oneUser, ErrTooWeak)
	}
	if err := p.createFolder(); err != nil {
		return nil, err
	}
	p.groups, p.noGroups = groupsOf(o)
	if p.languages, err = languages(o, found, p.dir, p.users != nil); err == nil {
		err = p.confine()
	}
	if err != nil {
		p.releaseDir()
		return nil, err
	}
	if hardened != nil {
		p.report.Missing = append(p.report.Missing, "code of the same user can read this process: "+hardened.Error())
	}
	p.report.Runtimes = map[string]string{}
	largest := int64(1)
	for name, l := range p.languages {
		p.report.Runtimes[name] = l.program
		largest = max(largest, l.limits.Memory)
	}
	memory, _ := Memory()
	if p.capacity = o.MaxExecutors; p.capacity <= 0 {
		p.capacity = capacity(memory, largest)
	}
	if p.memory = o.Memory; p.memory <= 0 {
		p.memory = memory / 4 * 3
	}
	p.background(p.sweepLater)
	return p, nil
}

// packagesDir is the name of the folder of packages, which is next to the folders of pools.
const packagesDir = "packages"

// base returns the folder under which the pools with this Dir create their folders. If dir is empty, it uses a folder
// in the system's temporary folder.
func (p *Pool) base(dir string) (string, error) {
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("sojourn-sandbox-%d", os.Getuid()))
	}
	dir, err := filepath.Abs(dir)
	if err == nil && p.users != nil && closedToOthers(filepath.Dir(dir), 0o001) != nil {
		dir = filepath.Join(openFolder(), "sojourn-sandbox-0")
	}
	return dir, err
}

// createFolder creates the folder of this pool and removes the folders of pools whose workers have ended.
func (p *Pool) createFolder() error {
	base, err := p.base(p.opt.Dir)
	if err != nil {
		return fmt.Errorf("sandbox folder: %w", err)
	}
	mode := fs.FileMode(0o700)
	if p.users != nil { // other users may enter the folder, but not list it
		mode = 0o711
	}
	// Set the mode explicitly, because the umask may have changed it.
	if err := errors.Join(os.MkdirAll(base, mode), ours(base), os.Chmod(base, mode)); err != nil {
		return fmt.Errorf("sandbox folder: %w", err)
	}
	if p.opt.Private == "" {
		p.opt.Private = base
	}
	if err := sweep(base); err != nil {
		return fmt.Errorf("sandbox folder: %w", err)
	}
	p.packages = &packages{
		pool: p, cache: filepath.Join(base, packagesDir), sets: map[string]*packageSet{}, latest: map[string]*manifest{},
		made: map[string]string{},
	}
	name := p.opt.Instance
	if name == "" {
		name = rand.Text()[:12]
	}
	p.dir = filepath.Join(base, "pool-"+name)
	if err := errors.Join(os.MkdirAll(p.dir, mode), os.Chmod(p.dir, mode)); err != nil {
		return fmt.Errorf("sandbox folder: %w", err)
	}
	if p.lock, err = filelock.Acquire(filepath.Join(p.dir, "lock"), os.O_CREATE); err != nil {
		return fmt.Errorf("sandbox folder %s is in use by another worker: %w", p.dir, err)
	}
	return nil
}

// sweep removes the folders of pools whose workers ended, and kills their remaining processes.
func sweep(base string) error {
	old, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	for _, e := range old {
		if dir := filepath.Join(base, e.Name()); e.IsDir() && strings.HasPrefix(e.Name(), "pool-") {
			if lock, err := filelock.Acquire(filepath.Join(dir, "lock"), 0); err == nil {
				supervisor.EndAll(dir)
				supervisor.Wipe(dir)
				_ = lock.Close()
			}
		}
	}
	return nil
}

// sweepLater sweeps once more. If a worker is killed while it starts a supervisor, the new process holds the worker's
// descriptors until it executes its program, and with them the lock.
func (p *Pool) sweepLater() {
	later := time.NewTimer(sweepRetry)
	defer later.Stop()
	select {
	case <-later.C:
		if err := sweep(filepath.Dir(p.dir)); err != nil {
			p.opt.Logger.Warn().Err(err).Msg("failed to remove the executor folders of dead workers")
		}
	case <-p.life.Done():
	}
}

// openFolder returns a folder that all users can enter, preferably on a disk.
func openFolder() string {
	if dir := "/var/tmp"; closedToOthers(dir, 0o001) == nil {
		return dir
	}
	return os.TempDir()
}

func (p *Pool) releaseDir() {
	if p.proxy != nil {
		p.proxy.Close()
	}
	if p.socketDir != "" {
		_ = os.RemoveAll(p.socketDir)
	}
	p.groups.Close()
	supervisor.Wipe(p.dir)
	_ = p.lock.Close()
}

// Report returns the isolation of this pool.
func (p *Pool) Report() Report { return p.report }

// Carries returns how many executors of these activities fit into the memory of all executors if each uses its memory
// limit; at least 1.
func (p *Pool) Carries(activities []string) int {
	return int(max(1, p.memory/p.MemoryLimit(activities)))
}

// MemoryLimit returns the largest memory limit of an executor of these activities, in bytes.
func (p *Pool) MemoryLimit(activities []string) int64 {
	largest := int64(1)
	for _, name := range activities {
		l, _, err := p.find(name, "")
		if err != nil {
			l = p.languages[RuntimeNative]
		}
		if l != nil {
			largest = max(largest, l.limits.Memory)
		}
	}
	return largest
}

// Has reports whether there is a handler for the activity, and returns its runtime.
func (p *Pool) Has(activity string) (runtime string, ok bool) {
	l, _, err := p.find(activity, "")
	if err != nil {
		return "", false
	}
	return l.name, true
}

// find returns the runtime of an activity and, for those in files, its code.
func (p *Pool) find(activity, hash string) (*language, *bundle, error) {
	if _, ok := Native[activity]; ok {
		return p.languages[RuntimeNative], nil, nil
	}
	b, err := p.catalog.find(activity)
	if err != nil {
		return nil, nil, &Error{Type: Unavailable, Message: err.Error(), Retryable: true}
	}
	if hash != "" && hash != b.Hash {
		return nil, nil, &Error{
			Type: Unavailable, Message: fmt.Sprintf("handler %s has version %s, not %s", activity, b.Hash, hash), Retryable: true,
		}
	}
	l := p.languages[b.Runtime]
	if l == nil {
		return nil, nil, &Error{
			Type: Unavailable, Message: fmt.Sprintf("handler %s needs %s, which is not installed on this worker", activity, b.Runtime),
			Retryable: true,
		}
	}
	return l, b, nil
}

// Snapshot lists the current executors, oldest first.
func (p *Pool) Snapshot() []ExecutorInfo {
	p.mu.Lock()
	all := make([]*executor, 0, len(p.all))
	for ex := range p.all {
		all = append(all, ex)
	}
	p.mu.Unlock()
	infos := make([]ExecutorInfo, len(all))
	for i, ex := range all {
		infos[i] = ex.info()
	}
	slices.SortFunc(infos, func(a, b ExecutorInfo) int { return a.Since.Compare(b.Since) })
	return infos
}

// Drain refuses new calls, waits for calls in flight until ctx ends, and closes all sessions with their close hooks.
// Calls that are still running when ctx ends continue until [Pool.Close].
func (p *Pool) Drain(ctx context.Context) error {
	p.mu.Lock()
	quiet := p.refuse()
	p.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
		return fmt.Errorf("drain: calls are still running: %w", context.Cause(ctx))
	}
	p.mu.Lock()
	var open []Session
	for _, s := range p.sessions {
		open = append(open, Session{ID: s.id, Epoch: s.epoch})
	}
	p.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range open {
		closing.Go(func() { _ = p.CloseSession(ctx, s, string(CauseDrained)) })
	}
	closing.Wait()
	return nil
}

// refuse refuses new calls and returns a channel that is closed when no call is in flight. The caller must hold the
// mutex.
func (p *Pool) refuse() <-chan struct{} {
	p.draining = true
	if p.quiet == nil {
		p.quiet = make(chan struct{})
		if p.inflight == 0 {
			close(p.quiet)
		}
	}
	return p.quiet
}

// Close kills every executor and returns when all their processes and files are removed. Calls in flight end with
// Unavailable. A second call does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.work.Wait()
		return
	}
	p.closed = true
	p.endLife(errors.New("the worker is stopping"))
	quiet := p.refuse()
	all := make([]*executor, 0, len(p.all))
	for ex := range p.all {
		all = append(all, ex)
	}
	p.mu.Unlock()
	for _, ex := range all {
		ex.kill(ending{cause: CauseDrained, kind: Unavailable, message: "the worker stops"})
	}
	for _, ex := range all {
		<-ex.done
	}
	<-quiet
	p.work.Wait()
	p.releaseDir()
}

// background runs fn as work of the pool, unless the pool is closed.
func (p *Pool) background(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(fn)
	}
}
