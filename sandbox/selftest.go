package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	lib "github.com/sojourn-run/sojourn/sandbox/internal/executor"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// proberName is the first argument of a probe process, which tries operations that an executor must not be able to
// perform.
const proberName = "sojourn-prober"

// probeTime is the timeout of a probe on a busy machine.
const probeTime = 30 * time.Second

// aim describes the surroundings of a probe: the resources that it must not be able to reach.
type aim struct {
	Worker   int    `json:"worker"`   // PID of the worker
	Secret   string `json:"secret"`   // a file of the worker's, closed to other users
	Outside  string `json:"outside"`  // a folder of the worker
	Abstract string `json:"abstract"` // abstract socket on which the worker listens
	Named    string `json:"named"`    // Unix socket in a folder on which the worker listens
	TCP      string `json:"tcp"`      // the worker's address on the network
	Group    string `json:"group"`    // file through which a process enters the worker's control group

	Resources []string `json:"take,omitempty"` // exceed the limits of these resources, and run no other test
}

// readAim reads the aim of a probe from its control file and returns that file for the results. Without an aim the
// probe exits.
func readAim() (a aim, control *os.File) {
	control = os.NewFile(lib.ControlFD, "control")
	line, err := bufio.NewReader(control).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		os.Exit(2)
	}
	return a, control
}

// These are the operations that a probe attempts. Each is harmless if it succeeds.
const (
	tryRead        = "read"        // a foreign file
	tryWrite       = "write"       // a file outside of the scratch folder
	tryEnviron     = "environ"     // environment of the worker
	tryTrace       = "trace"       // attach to the worker as a debugger
	tryProcesses   = "processes"   // command lines of other processes
	tryDescriptors = "descriptors" // descriptors that were left open
	tryCalls       = "calls"       // system calls that programs do not need
	tryModes       = "modes"       // mode of a foreign file
	trySignal      = "signal"      // a signal to the worker
	tryAbstract    = "abstract"    // connect to an abstract socket
	tryNamed       = "named"       // connect to a Unix socket in a folder
	tryNetwork     = "network"
	tryRoot        = "root"  // the process is root
	tryGroup       = "group" // enter the worker's control group
)

// coreTests are the tests that define the level confined: code that passes one of them is not confined.
var coreTests = []string{tryRead, tryWrite, tryEnviron, tryTrace, tryProcesses, tryDescriptors, tryCalls}

// consequences describe the consequences of a successful test, in order of importance.
var consequences = []struct{ try, words string }{
	{tryRead, "code can read any file the worker's user can read, secret files included"},
	{tryEnviron, "code can read the worker's environment"},
	{tryTrace, "code can trace the worker: read and change its memory"},
	{tryRoot, "code runs as root, though without capabilities"},
	{tryModes, "code can change the modes and times of its user's files"},
	{tryProcesses, "code can see other processes and their command lines"},
	{trySignal, "code can signal other processes of its user"},
	{tryAbstract, "code can connect to abstract sockets of other processes"},
	{tryNamed, "code can connect to the sockets in the file system that its user may write to"},
	{tryNetwork, "code can connect to anything the worker can reach"},
	{tryWrite, "code can leave files outside its scratch folder"},
	{tryGroup, "code can leave its control group and so escape its limits"},
	{tryDescriptors, "code finds descriptors that the worker left open"},
	{tryCalls, "code can make system calls that are used to escape sandboxes"},
}

// unusedPort is a port without a proxy, for a probe that must not reach the network.
const unusedPort = 9

// outcome is the set of tests that succeeded in a probe.
type outcome map[string]bool

// missing describes the missing protection in words.
func (o outcome) missing() []string {
	var all []string
	for _, w := range consequences {
		if o[w.try] {
			all = append(all, w.words)
		}
	}
	return all
}

// confined returns nil if the outcome satisfies the level confined, and otherwise the failed requirements.
func (o outcome) confined() error {
	var not []string
	for _, try := range coreTests {
		if o[try] {
			not = append(not, try)
		}
	}
	if len(not) > 0 {
		return fmt.Errorf("the self-test could do what confined code must not: %s", strings.Join(not, ", "))
	}
	return nil
}

// confine determines the level of the pool: the strongest that a probe verified, or the requested one.
func (p *Pool) confine() error {
	o, offered := p.opt, lockdown.Offered()
	if o.kernel != nil {
		offered = *o.kernel
	}
	confined := o.MinLevel == FloorAuto && offered.Landlock > 0 && (o.Level == "" || o.Level == LevelConfined)
	floor := o.MinLevel
	if floor == FloorAuto {
		if floor = LevelNone; confined {
			floor = LevelConfined
		}
	}
	p.report = Report{
		Level: LevelProcess, LandlockABI: offered.Landlock, Egress: EgressOpen,
	}
	if p.groups == nil {
		p.report.Cgroup = p.noGroups.Error()
	}
	if err := p.measure(); err != nil {
		return err
	}
	var found outcome
	var out way
	var err error
	switch {
	case o.Level == LevelProcess:
		p.report.Reason = "the setting isolation requests this level"
	case offered.Landlock == 0:
		err = errors.New("Landlock is not available: the kernel lacks it or the container blocks it")
	case !offered.Filter:
		err = errors.New("seccomp is not available: the kernel lacks it or the container blocks it")
	default:
		out, found, err = p.findEgress(offered)
	}
	closed := o.Egress == EgressNone || o.Egress == EgressFiltered
	switch {
	case closed && (err != nil || o.Level == LevelProcess):
		why := p.report.Reason
		if err != nil {
			why = err.Error()
		}
		return fmt.Errorf("egress %s cannot be enforced, since code is not confined: %s: %w", o.Egress, why, ErrTooWeak)
	case err != nil && o.Level == LevelConfined:
		return fmt.Errorf("isolation level %s is not available: %w: %w", o.Level, err, ErrTooWeak)
	case err != nil:
		p.report.Reason = "code is not confined: " + err.Error()
	case o.Level != LevelProcess:
		p.report.Level, p.report.Egress, p.report.EgressBy = LevelConfined, out.egress, out.by
		port := 0
		if out.egress == EgressFiltered {
			if err := p.serve(out); err != nil {
				return err
			}
			port = p.proxy.Port()
		}
		unreachable := o.unreachable()
		for _, l := range p.languages {
			if l.proxy = p.proxy; l.proxy != nil && l.name == RuntimeNode {
				l.args = slices.Insert(l.args, 1, "--require", filepath.Join(p.dir, proxyName))
			}
			l.rule = func(scratch string) *lockdown.Rules {
				r := l.rules(o, offered, p.dir)
				out.addTo(&r, port)
				r.Write = append(r.Write, scratch)
				return &r
			}
			l.unreachable = unreachable
		}
	}
	if p.report.Level == LevelProcess {
		if found, err = p.cachedProbe(nil, way{}); err != nil {
			return fmt.Errorf("self-test of the isolation: %w", err)
		}
	}
	p.report.Signals = !found[trySignal] && !found[tryAbstract]
	p.report.UIDPerSession = p.users != nil
	p.report.Missing = found.missing()
	if found[tryRoot] && p.oneUser != nil {
		p.report.Missing = append(p.report.Missing, "executors have no separate users: "+p.oneUser.Error())
	}
	if out.by == byLandlock && p.proxy != nil {
		p.report.Missing = append(p.report.Missing, fmt.Sprintf(
			"code can connect to port %d of any machine, since the worker's proxy uses that port", p.proxy.Port(),
		))
	}
	p.report.Missing = append(append(p.report.Missing, p.report.unenforcedLimits()...), unwatched...)
	if floor != "" && !p.report.Level.AtLeast(floor) && !o.AllowWeaker {
		return fmt.Errorf(
			"isolation level %s is below the minimum %s (%s: %s): %w", p.report.Level, floor, p.report.Reason,
			strings.Join(p.report.Missing, "; "), ErrTooWeak,
		)
	}
	return nil
}

// probeCache caches the outcomes of probes, which are equal for all pools of this process.
var probeCache = struct {
	sync.Mutex
	found  map[probeConfig]outcome
	limits map[probeConfig]limitMechanisms
}{found: map[probeConfig]outcome{}, limits: map[probeConfig]limitMechanisms{}}

// probeConfig is the configuration of a probe.
type probeConfig struct {
	kernel lockdown.Kernel
	way    way
	users  bool // separate users
	groups bool // control groups for executors
}

// cachedProbe runs a probe like an executor, with or without the lockdown that the kernel offers.
func (p *Pool) cachedProbe(offered *lockdown.Kernel, w way) (outcome, error) {
	k := probeConfig{way: w, users: p.users != nil, groups: p.groups != nil}
	if offered != nil {
		k.kernel = *offered
	}
	probeCache.Lock()
	defer probeCache.Unlock()
	if found, done := probeCache.found[k]; done {
		return found, nil
	}
	found, err := p.runProbe(offered, w)
	if err == nil {
		probeCache.found[k] = found
	} else if p.users != nil && p.opt.Users == "" {
		// Separate users were not explicitly requested, so the pool continues without them and reports that.
		with := p.users
		p.users = nil
		if found, retryErr := p.runProbe(offered, w); retryErr == nil {
			p.oneUser = err
			return found, nil
		}
		p.users = with
	}
	return found, err
}

func (p *Pool) runProbe(offered *lockdown.Kernel, w way) (found outcome, err error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	a := aim{
		Worker: os.Getpid(), Secret: filepath.Join(p.dir, "secret"), Outside: p.dir,
		Abstract: "@sojourn-" + filepath.Base(p.dir), Named: filepath.Join(p.dir, "socket"), Group: p.groups.ProcsFile(),
	}
	scratch := filepath.Join(p.dir, "test")
	defer os.Remove(a.Secret)
	u, err := p.users.acquireUser()
	if err != nil {
		return nil, err
	}
	defer u.release()
	if err := errors.Join(
		os.WriteFile(a.Secret, nil, 0o600), os.Mkdir(scratch, 0o700), u.own(scratch),
	); err != nil {
		return nil, err
	}
	defer supervisor.Wipe(scratch)
	for _, address := range []*string{&a.Abstract, &a.Named, &a.TCP} {
		at, stop, err := listen(*address)
		if *address = at; err != nil {
			*address = "" // this machine has no such sockets, so there is nothing to test
			continue
		}
		defer stop()
	}
	// Let all users connect: the result must not depend on the user of the executors.
	_ = os.Chmod(a.Named, 0o666)
	l := &language{name: RuntimeNative, program: program}
	config := supervisor.Config{
		Path: program, Args: []string{proberName}, Env: l.environment(Options{}, scratch), Dir: scratch, User: u.number(),
	}
	if offered != nil {
		r := l.rules(p.opt, *offered, p.dir)
		w.addTo(&r, unusedPort)
		r.Write = append(r.Write, scratch)
		config.Lockdown = &r
	}
	proc, err := startProcess(config)
	if err != nil {
		return nil, err
	}
	defer func() {
		proc.order(supervisor.OrderKill)
		_ = proc.line.SetReadDeadline(time.Now().Add(probeTime))
		for end := false; !end; {
			f, ferr := proc.fact()
			end = ferr != nil || f.T == supervisor.FactEnd
			if f.Error != "" {
				err = errors.New(f.Error) // the fact has more information than a missing response
			}
		}
		_ = proc.cmd.Process.Kill()
		_ = proc.cmd.Wait()
		proc.release()
	}()
	_ = proc.control.SetDeadline(time.Now().Add(probeTime))
	encoded, err := json.Marshal(a)
	if err == nil {
		_, err = proc.control.Write(append(encoded, '\n'))
	}
	var answer []byte
	if err == nil {
		answer, err = bufio.NewReader(proc.control).ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(answer, &found)
	}
	if err == nil {
		for _, w := range consequences {
			if _, there := found[w.try]; !there {
				err = fmt.Errorf("the self-test reported nothing about %s", w.try)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the self-test did not respond: %w", err)
	}
	return found, nil
}
