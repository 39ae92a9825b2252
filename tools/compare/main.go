// Command compare runs the same workload on Sojourn and on other systems, alternating between them, and measures the
// processor time of all their processes: server, worker, client and database.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// peers are the compared systems in the order of the table.
var peers = []peer{
	{
		name: "sojourn-sqlite", title: "Sojourn, SQLite", local: true,
		settings: "WAL, synchronous=FULL; app and worker in one process; client over HTTP, one request per workflow",
	},
	{
		name: "sojourn-postgres", title: "Sojourn, PostgreSQL", postgres: true, local: true,
		settings: "app and worker in one process; client over HTTP, one request per workflow",
	},
	{
		name: "river", title: "River", postgres: true,
		settings: "128 workers, its default pauses between fetches; a step is a job that completes and inserts the next in " +
			"one transaction",
	},
	{
		name: "river-fast", title: "River, fast", postgres: true,
		settings: "the settings of River's benchmark: 2 ms between fetches, polls every 20 ms, 2,000 workers; a step as above",
	},
	{
		name: "dbos", title: "DBOS", postgres: true,
		settings: "client, workflows and steps in one process; default pool",
	},
	{
		name: "restate", title: "Restate",
		settings: "one node, its default durability; steps recorded by ctx.run in a handler in Node, client over HTTP",
	},
	{name: "temporal", title: "Temporal", settings: "development server with a database file, default worker"},
}

// peer is one of the compared systems, with its process.
type peer struct {
	name, title, settings string
	postgres              bool
	local                 bool // it also runs workflows whose steps are functions in the workflow's process
	version               string
	skipped               string // reason why it is skipped; empty: it runs
	cmd                   *exec.Cmd
	in                    io.WriteCloser
	lines                 chan string
}

// Workloads of local steps: functions in the workflow's process whose results are recorded, each before the next one
// begins.
const (
	fiveLocal = "five-local"
	oneLocal  = "one-local"
)

// workloads are all workloads in the order of the table.
var workloads = []string{"five", "one", fiveLocal, oneLocal}

// works returns the workloads of a peer. The steps of DBOS and Restate are local in any case.
func (p *peer) works() []string {
	if p.local {
		return workloads
	}
	return workloads[:2]
}

// result is the result of one workload on one peer.
type result struct {
	Peer     string    `json:"peer"`
	Version  string    `json:"version,omitempty"`
	Settings string    `json:"settings"`
	Work     string    `json:"work"`
	N        int       `json:"n"`
	AtOnce   int       `json:"at_once"`
	Median   float64   `json:"workflows_per_s"`
	CPU      float64   `json:"cpu_ms_per_workflow"`
	Runs     []float64 `json:"runs"`
	CPUs     []float64 `json:"cpu_runs"`
	Skipped  string    `json:"skipped,omitempty"`
}

const (
	warmUp          = 50
	responseTimeout = 3 * time.Minute // maximum duration of a run
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "peer" {
		if err := serve(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(asSojourn) != "" {
		sojournMain()
	}
	only := flag.String("only", "", "comma-separated names of peers (default: all)")
	n := flag.Int("n", 500, "workflows per run")
	atOnce := flag.Int("at-once", 64, "maximum number of open workflows")
	runs := flag.Int("runs", 3, "runs per workload and peer; the table shows the median")
	asJSON := flag.Bool("json", false, "print the results as a JSON array instead of a table")
	flag.Parse()
	if err := compare(*only, *n, *atOnce, *runs, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func compare(only string, n, atOnce, runs int, asJSON bool) error {
	server := os.Getenv("SOJOURN_TEST_POSTGRES")
	if server == "" {
		return errors.New("SOJOURN_TEST_POSTGRES is not set; set it to the URL of a PostgreSQL server with the CREATEDB privilege")
	}
	postmaster, about, err := describeServer(server)
	if err != nil {
		return err
	}
	var there []*peer
	defer func() {
		for _, p := range there {
			p.stop()
		}
	}()
	for i := range peers {
		p := &peers[i]
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		there = append(there, p)
		if err := p.start(server); err != nil {
			p.skipped = err.Error()
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", p.name, err)
		}
	}
	var results []*result
	for _, work := range workloads {
		there := slices.DeleteFunc(slices.Clone(there), func(p *peer) bool { return !slices.Contains(p.works(), work) })
		of := make([]*result, len(there))
		for i, p := range there {
			of[i] = &result{
				Peer: p.title, Version: p.version, Settings: p.settings, Work: work, N: n, AtOnce: atOnce, Skipped: p.skipped,
			}
		}
		for range runs {
			for i, p := range there {
				if p.skipped != "" {
					continue
				}
				took, used, err := p.run(work, n, atOnce, postmaster)
				if err != nil {
					p.skipped, of[i].Skipped = err.Error(), err.Error()
					fmt.Fprintf(os.Stderr, "%s is left out: %v\n", p.name, err)
					continue
				}
				rate, cpu := float64(n)/took, used.Seconds()*1000/float64(n)
				of[i].Runs, of[i].CPUs = append(of[i].Runs, rate), append(of[i].CPUs, cpu)
				fmt.Fprintf(os.Stderr, "%s %s: %s/s, %.1f ms\n", p.name, work, rounded(rate), cpu)
			}
		}
		results = append(results, of...)
	}
	for _, r := range results {
		r.Median, r.CPU = median(r.Runs), median(r.CPUs)
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(results)
	}
	fmt.Print(markdown(results, about))
	return nil
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// markdown returns the results as a Markdown table.
func markdown(results []*result, about string) string {
	var b strings.Builder
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(
		&b, "%s; %d cores, load %s; %s; %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:3], " "), runtime.Version(), about,
	)
	b.WriteString("| | steps | workflows a second | processor time of each, ms | settings |\n|---|---|---|---|---|\n")
	for _, r := range results {
		name := strings.TrimSpace(r.Peer + " " + r.Version)
		if r.Skipped != "" {
			fmt.Fprintf(&b, "| %s | %s | | | left out: %s |\n", name, r.Work, strings.ReplaceAll(r.Skipped, "\n", " "))
			continue
		}
		fmt.Fprintf(
			&b, "| %s | %s | %s (%s – %s) | %.1f | %s |\n", name, r.Work, rounded(r.Median), rounded(slices.Min(r.Runs)),
			rounded(slices.Max(r.Runs)), r.CPU, r.Settings,
		)
	}
	return b.String()
}

// rounded formats a rate: below 100 with one decimal.
func rounded(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// start starts a peer's process, waits until it is ready, and warms it up.
func (p *peer) start(server string) error {
	command := []string{"/proc/self/exe", "peer", p.name}
	if p.name == "dbos" {
		command = []string{"node", "dbos.mjs"}
	}
	p.cmd = exec.Command(command[0], command[1:]...)
	if p.postgres {
		database, err := newDatabase(server, "compare_"+strings.ReplaceAll(p.name, "-", "_"))
		if err != nil {
			return err
		}
		p.cmd.Env = append(os.Environ(), "DATABASE="+database)
	}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // its child processes end too
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	p.in, p.lines = in, make(chan string)
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			if line, ours := strings.CutPrefix(s.Text(), "compare: "); ours {
				p.lines <- line
			}
		}
	}()
	response, err := p.response()
	if err != nil {
		return err
	}
	version, ready := strings.CutPrefix(response, "ready ")
	if !ready {
		return errors.New(strings.TrimPrefix(response, "cannot "))
	}
	p.version = version
	for _, work := range p.works() {
		if _, err := p.work(work, warmUp, warmUp); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) response() (string, error) {
	select {
	case line, open := <-p.lines:
		if !open {
			return "", errors.New("the process of the compared system has exited")
		}
		return line, nil
	case <-time.After(responseTimeout):
		return "", fmt.Errorf("no response from the peer within %s", responseTimeout)
	}
}

// work runs a workload in a peer and returns the duration in seconds.
func (p *peer) work(kind string, n, atOnce int) (took float64, err error) {
	if _, err := fmt.Fprintln(p.in, kind, n, atOnce); err != nil {
		return 0, err
	}
	response, err := p.response()
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(response, "done %f", &took); err != nil {
		return 0, errors.New(response)
	}
	return took, nil
}

// run runs a workload, and returns its duration in seconds and the processor time of the peer's processes and of the
// database server.
func (p *peer) run(work string, n, atOnce, postmaster int) (took float64, used time.Duration, err error) {
	count := func() (time.Duration, error) {
		all, err := cpuOf(p.cmd.Process.Pid)
		if err != nil || !p.postgres {
			return all, err
		}
		database, err := cpuOf(postmaster)
		return all + database, err
	}
	before, err := count()
	if err != nil {
		return 0, 0, err
	}
	if took, err = p.work(work, n, atOnce); err != nil {
		return 0, 0, err
	}
	after, err := count()
	return took, after - before, err
}

// stop ends a peer and its child processes.
func (p *peer) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.in.Close() // every peer exits at the end of its input
	go func() {
		for range p.lines { // remaining output
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
	}
}

// serve is the main function of a peer's process: it reports that it is ready and executes requests until its input
// ends.
func serve(name string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	open := map[string]func(context.Context) (*system, error){
		"sojourn-sqlite": openSojourn, "sojourn-postgres": openSojourn, "river": openRiver, "river-fast": openFastRiver,
		"restate":  openRestate,
		"temporal": openTemporal,
	}[name]
	if open == nil {
		return fmt.Errorf("unknown peer %q", name)
	}
	s, err := open(ctx)
	if err != nil {
		fmt.Println("compare: cannot", strings.ReplaceAll(err.Error(), "\n", " "))
		return nil
	}
	defer s.close()
	fmt.Println("compare: ready", s.version)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var work string
		var n, atOnce int
		if _, err := fmt.Sscan(in.Text(), &work, &n, &atOnce); err != nil {
			return err
		}
		took, err := many(ctx, n, atOnce, func(ctx context.Context) error {
			out, err := s.do(ctx, work, kilobyte)
			if err == nil && out != kilobyte {
				err = fmt.Errorf("a workflow returned %d bytes", len(out))
			}
			return err
		})
		if err != nil {
			fmt.Println("compare: failed", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println("compare: done", took.Seconds())
	}
	return nil
}
