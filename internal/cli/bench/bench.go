// Package bench measures a complete Sojourn on one machine: client, app, worker and database, with durable commits.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// Options of a run.
type Options struct {
	Scenarios []string // ids; empty: all
	Stores    []string // sqlite, postgres
	Postgres  string   // URL of a server where databases can be created
	Runs      int      // runs of each scenario; the median is reported
	Large     bool     // also measure the largest sizes of growing data
	Sizes     []int    // sizes of growing data to measure; empty: all
	Data      string   // folder that keeps filled databases for later measurements; empty: none
	Quick     bool     // fewer operations and runs, for a quick check
	Version   string   // version of the program, for the record
	// Program is the command that starts this program as an app without its settings, which P12 needs. Empty: P12
	// fails.
	Program  []string
	Profile  string // folder for a CPU profile of each scenario, with a flame graph; empty: none
	Progress func(done, all int, what string)
	// Figure is called with the intermediate result of a growing scenario after each of its runs, so that results
	// remain if later runs time out; nil: no call.
	Figure func(Result)
	Log    zerolog.Logger
}

// Result is the result of one scenario on one store over one transport.
type Result struct {
	Scenario    string    `json:"scenario"`
	Description string    `json:"description"`
	Store       string    `json:"store"`
	Transport   string    `json:"transport"`
	Unit        string    `json:"unit"`
	N           int       `json:"n"` // operations in one run
	Median      float64   `json:"median"`
	Min         float64   `json:"min"`
	Max         float64   `json:"max"`
	P50         float64   `json:"p50_ms"`
	P99         float64   `json:"p99_ms"`
	CPU         float64   `json:"cpu_ms_per_op"`
	Limit       Limit     `json:"limit"`
	OfLimit     float64   `json:"of_limit"` // part of the limit that applies
	Runs        []float64 `json:"runs"`
	Size        int       `json:"size,omitempty"` // size of the data that SizeOf names, in measurements of growth
	SizeOf      string    `json:"size_of,omitempty"`
	Cores       int       `json:"cores"`
	Go          string    `json:"go"`
	Version     string    `json:"version"` // version of Sojourn
	Date        string    `json:"date"`    // date of the first run, UTC
}

// Limit holds the limits of machine and store, measured in the same run.
type Limit struct {
	Fsyncs     float64 `json:"fsyncs_per_s"`
	Commits    float64 `json:"commits_per_s"`
	RoundTrips float64 `json:"round_trips_per_s,omitempty"`
}

// scenario is one measurement. measure runs n operations on a new app and returns the duration of each; rate selects
// the limits that bound the scenario.
type scenario struct {
	id, transport, unit string
	only                string // the only database that it is measured on; empty: all
	n, quick            int
	figure              func(sample) float64 // nil: operations per second
	more                []figure             // further figures of the same runs
	most                int                  // maximum number of runs, if one takes long; 0: the configured number
	// The app is idle: an operation is an interval in which its activity is counted.
	rests   bool
	options func(*nodeOptions)
	measure func(ctx context.Context, n *node, ops int) (sample, error)
}

// figure is an additional measured value of a run.
type figure struct {
	unit string
	of   func(sample) float64
}

// sample is the result of one run of a scenario.
type sample struct {
	elapsed    time.Duration
	each       []time.Duration
	without    []time.Duration // without the measured feature
	used       time.Duration   // processor time, if it is measured
	plain      time.Duration   // the same without the measured feature
	client     time.Duration   // processor time of the caller's process
	database   time.Duration   // processor time of the database server
	more       []float64       // additional processor time in percent, by pairs of turns
	off        float64         // difference from the expected value in percent
	commits    int64
	roundTrips int64
	statements int64 // number of statements and reads
	resident   int64 // bytes in memory, at the end
	size       int64 // size of the program in bytes
}

// Scenarios lists the scenarios by ID with a one-line description.
func Scenarios() [][2]string {
	return [][2]string{
		{"P1", "durable completions of activities leased in order, 128 in flight, on SQLite"},
		{"P2", "the same on PostgreSQL"},
		{"P3", "activities without work, 1,000 per workflow, run by the Go worker"},
		{"P4", "workflows of five sequential activities, a worker over HTTP with 50 connections"},
		{"P5", "the same with the Go worker: in the app's process, and over the socket"},
		{"P6", "time of one such workflow on an idle server"},
		{"P7", "time from the start of a workflow to the first line of its code, at 500 a second"},
		{"P8", "time of one workflow of 1,000 parallel activities"},
		{"P9", "time that a session adds until an activity begins: the first activity of the session, and a later one"},
		{"P10", "statements a second and CPU for the leases of 10,000 sessions that 200 workers hold, plain and fail-fast"},
		{
			"P11",
			"statements a minute, processor time and memory of an app at rest: 100,000 workflows sleep, beside a worker in its " +
				"process, and beside 1,000 connected ones",
		},
		{"P12", "footprint: time until the app is ready on an existing file, binary size, memory at rest"},
		{
			"P13",
			"99th percentile of tenants' workflows next to a tenant with 100 times as many, as a multiple of running alone; " +
				"and the deviation of leases from the weights of fairness keys, in percent",
		},
		{"P14", "seconds to read and replay a history of 50,000 events"},
		{"P15", "seconds until 60,000 schedules due in the same second have started their workflows"},
		{"P16", "calls of isolated code by runtime: one that starts an executor, small and large ones in a running executor"},
		{"P17", "change of the time of other workflows while 1,000 tasks are blocked by a session, in percent"},
		{
			"P18",
			"CPU time of five sequential activities in a held session, relative to five without a session, in percent",
		},
		{
			"P19",
			"CPU time of five sequential activities next to 1,000 waiting workers that cannot run them, relative to none, in percent",
		},
		{"P20", "CPU time of a step near the end of a long run, as a multiple of a step near its beginning, by workers"},
		{
			"P21",
			"a client with 64 HTTP connections starts workflows of one and five activities and waits for each result, in one " +
				"request and in two; CPU time of client, app and database server",
		},
		{
			"P22",
			"workflows of five local steps with the Go worker in the app's process: each step recorded by itself, and all " +
				"with their task",
		},
		{
			"P23",
			"99th percentile of a tenant's workflows while another tenant floods the app over HTTP, as a multiple of running alone: " +
				"with starts, signals, payloads of 2 MB, 50,000 activities, searches, polls",
		},
		{"P1-RETAINED", "P1 with 1,000 and 100,000 retained completed runs (--large: 1,000,000)"},
		{"P3-RETAINED", "P3 with the same retained runs"},
		{"P5-RETAINED", "P5 with the same retained runs"},
		{
			"LISTINGS", "95th percentile of listings of runs in milliseconds, by filter, and the reads of operators' pages, " +
				"with 1,000 and 100,000 runs (--large: 1,000,000)",
		},
		{"P4-WORKERS", "P4 with 10, 100 and 1,000 workers of one connection each"},
		{"P5-APPS", "P5 on one, two and four apps that share a PostgreSQL database, each with its own worker and queue"},
		{"CLAIMS", "leases of one activity out of 1,000, 10,000 and 100,000 ready ones"},
		{"LONG", "CPU time of a step in runs of 500, 5,000 and 50,000 events"},
		{"CARRY", "a workflow that continues as new after each of 250, 1,000 and 4,000 waiting signals"},
		{"WIDE", "one run of 100, 1,000 and 10,000 parallel activities"},
	}
}

// describe returns the description of a scenario, or an empty string for an unknown one.
func describe(id string) string {
	for _, s := range Scenarios() {
		if s[0] == id {
			return s[1]
		}
	}
	return ""
}

// Run measures the selected scenarios. Results are ordered by scenario, store and transport.
func Run(ctx context.Context, o Options) ([]Result, error) {
	if o.Runs <= 0 {
		o.Runs = 5
	}
	if o.Quick {
		o.Runs = 1
	}
	if len(o.Scenarios) == 0 {
		for _, s := range scenarios() { // growing scenarios take long and run only if they are selected
			o.Scenarios = append(o.Scenarios, s.id)
		}
		o.Scenarios = append(o.Scenarios, isolated)
	}
	var todo []scenario
	for _, s := range scenarios() {
		if slices.Contains(o.Scenarios, s.id) {
			todo = append(todo, s)
		}
	}
	var bigger []growing
	all := 0
	for _, s := range todo {
		all += len(on(s.only, o.Stores)) * s.runs(o)
	}
	calls := slices.Contains(o.Scenarios, isolated)
	if calls {
		all += isolatedSteps() * o.Runs
	}
	for _, g := range growths() {
		asked := 0
		for _, p := range g.parts {
			if slices.Contains(o.Scenarios, p.id) {
				asked++
			}
		}
		if asked > 0 {
			bigger, all = append(bigger, g), all+asked*len(g.sized(o))*len(g.stores(o))*o.Runs
		}
	}
	if all == 0 {
		return nil, fmt.Errorf(
			"no scenario of %v runs on %v: P1 and P12 require sqlite, P2 and P5-APPS require postgres", o.Scenarios, o.Stores,
		)
	}
	var results []Result
	done := 0
	for _, s := range todo {
		for _, kind := range on(s.only, o.Stores) {
			some, err := repeat(ctx, s, kind, o, func() { done++; o.progress(done, all, s.id+" "+kind+" "+s.transport) })
			if err != nil {
				return results, fmt.Errorf("%s on %s over %s: %w", s.id, kind, s.transport, err)
			}
			results = append(results, some...)
		}
	}
	if calls {
		some, err := measureIsolated(ctx, o, func(what string) { done++; o.progress(done, all, isolated+" "+what) })
		if err != nil {
			return results, fmt.Errorf("%s: %w", isolated, err)
		}
		results = append(results, some...)
	}
	for _, g := range bigger {
		for _, kind := range g.stores(o) {
			some, err := measureGrowth(ctx, g, kind, o, func(what string, over int) {
				done += over
				o.progress(done, all, what)
			})
			if err != nil {
				return results, fmt.Errorf("on %s: %w", kind, err)
			}
			results = append(results, some...)
		}
	}
	return results, nil
}

// on returns the selected databases on which a scenario can run; only restricts it to one kind.
func on(only string, stores []string) []string {
	return slices.DeleteFunc(slices.Clone(stores), func(kind string) bool { return only != "" && only != kind })
}

func (o Options) progress(done, all int, what string) {
	if o.Progress != nil {
		o.Progress(done, all, what)
	}
}

// runs returns the number of runs of a scenario.
func (s *scenario) runs(o Options) int {
	if s.most > 0 {
		return min(s.most, o.Runs)
	}
	return o.Runs
}

// repeat runs one scenario repeatedly, each time on a new database after a short warm-up. The first result is its main
// figure; the others are additional figures of the same runs.
func repeat(ctx context.Context, s scenario, kind string, o Options, step func()) ([]Result, error) {
	ops := s.n
	if o.Quick {
		ops = s.quick
	}
	figures := append([]figure{{s.unit, s.figure}}, s.more...)
	results := make([]Result, len(figures))
	for i, f := range figures {
		results[i] = Result{
			Scenario: s.id, Description: describe(s.id),
			Store: kind, Transport: s.transport, Unit: f.unit, N: ops, Cores: runtime.NumCPU(),
			Go: runtime.Version(), Version: o.Version, Date: time.Now().UTC().Format(time.DateOnly),
		}
	}
	var each []time.Duration
	var cpu time.Duration
	var limit Limit
	ofTheLimit := 0.0
	profiled := &profiles{dir: o.Profile}
	for range s.runs(o) {
		one, used, allowed, err := once(ctx, s, kind, o, ops, profiled)
		if err != nil {
			return results, err
		}
		for i, f := range figures {
			value := float64(ops) / one.elapsed.Seconds()
			if f.of != nil {
				value = f.of(one)
			}
			results[i].Runs = append(results[i].Runs, value)
		}
		each, cpu = append(each, one.each...), cpu+used
		limit, ofTheLimit = allowed, fractionOfLimit(one, allowed)
		step()
	}
	for i := range results {
		r := &results[i]
		r.middle()
		r.Limit = limit
		if i == 0 { // the other parts do not measure operations
			r.P50, r.P99, r.OfLimit = millis(percentile(each, 50)), millis(percentile(each, 99)), ofTheLimit
			r.CPU = millis(cpu) / float64(ops*s.runs(o))
		}
	}
	return results, profiled.write(s.id+"-"+kind+"-"+s.transport, results[0])
}

func once(
	ctx context.Context, s scenario, kind string, o Options, ops int, profiled *profiles,
) (one sample, used time.Duration, limit Limit, err error) {
	no := nodeOptions{store: kind, postgres: o.Postgres, quick: o.Quick, program: o.Program, log: o.Log}
	if s.options != nil {
		s.options(&no)
	}
	n, err := openNode(ctx, no)
	if err != nil {
		return one, 0, limit, err
	}
	defer func() {
		if e := n.close(); err == nil {
			err = e
		}
	}()
	if _, err := s.measure(ctx, n, max(1, ops/20)); err != nil { // warm-up
		return one, 0, limit, err
	}
	if limit, err = n.limits(ctx); err != nil {
		return one, 0, limit, err
	}
	runtime.GC()
	end, err := profiled.begin()
	if err != nil {
		return one, 0, limit, err
	}
	before, stats, trips := cpuTime(), n.app.Store().Stats(), n.trips.Load()
	one, err = s.measure(ctx, n, ops)
	used = cpuTime() - before
	err = errors.Join(err, end())
	one.commits = n.app.Store().Stats().Commits - stats.Commits
	one.roundTrips = n.trips.Load() - trips
	return one, used, limit, err
}

// fractionOfLimit returns the used fraction of the limit that bounds the scenario: commits of the store, or round trips
// of the transport.
func fractionOfLimit(s sample, l Limit) float64 {
	secs := s.elapsed.Seconds()
	used := 0.0
	if l.Commits > 0 {
		used = float64(s.commits) / secs / l.Commits
	}
	if l.RoundTrips > 0 {
		used = max(used, float64(s.roundTrips)/secs/l.RoundTrips)
	}
	return used
}

func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// median is the time of an operation.
func median(s sample) float64 { return millis(percentile(s.each, 50)) }

// durationAdded returns the additional duration of an operation compared with the baseline.
func durationAdded(s sample) float64 { return median(s) - millis(percentile(s.without, 50)) }

// percentAdded returns the additional duration in percent.
func percentAdded(s sample) float64 {
	return 100 * durationAdded(s) / millis(percentile(s.without, 50))
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cpuTime returns the processor time of this process in user and system mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
