// Command compare runs the same work on Sojourn and on others, in turns, and counts the processor time of every process
// that takes part: server, worker, client and database.
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

// peers are the compared systems, in the order of the table.
var peers = []peer{
	{
		name: "sojourn-sqlite", say: "Sojourn, SQLite",
		settings: "WAL, synchronous=FULL; app and worker in one process, client over HTTP",
	},
	{
		name: "sojourn-postgres", say: "Sojourn, PostgreSQL", postgres: true,
		settings: "app and worker in one process, client over HTTP",
	},
	{
		name: "river", say: "River", postgres: true,
		settings: "128 workers, its default pauses between fetches; a step is a job that completes and inserts the next in " +
			"one transaction",
	},
	{
		name: "dbos", say: "DBOS", postgres: true,
		settings: "client, workflows and steps in one process; default pool",
	},
	{
		name: "restate", say: "Restate",
		settings: "one node, its default durability; steps recorded by ctx.run in a handler in Node, client over HTTP",
	},
	{name: "temporal", say: "Temporal", settings: "development server with a database file, default worker"},
}

// peer is one of them, and its process while it runs.
type peer struct {
	name, say, settings string
	postgres            bool
	version             string
	skipped             string // why it is not there
	cmd                 *exec.Cmd
	in                  io.WriteCloser
	lines               chan string
}

// result is one kind of work on one peer.
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
	warmUp  = 50
	patient = 3 * time.Minute // how long one run may take
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
	only := flag.String("only", "", "names of peers, comma separated; all when empty")
	n := flag.Int("n", 500, "workflows in a run")
	atOnce := flag.Int("at-once", 64, "workflows open at once")
	runs := flag.Int("runs", 3, "runs of each, in turns; the median is shown")
	asJSON := flag.Bool("json", false, "print one JSON array instead of a table")
	flag.Parse()
	if err := compare(*only, *n, *atOnce, *runs, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func compare(only string, n, atOnce, runs int, asJSON bool) error {
	server := os.Getenv("SOJOURN_TEST_POSTGRES")
	if server == "" {
		return errors.New("SOJOURN_TEST_POSTGRES is to name a PostgreSQL server where databases may be made")
	}
	postmaster, about, err := lookAt(server)
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
	for _, work := range []string{"five", "one"} {
		of := make([]*result, len(there))
		for i, p := range there {
			of[i] = &result{
				Peer: p.say, Version: p.version, Settings: p.settings, Work: work, N: n, AtOnce: atOnce, Skipped: p.skipped,
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
				fmt.Fprintf(os.Stderr, "%s %s: %.0f/s, %.1f ms\n", p.name, work, rate, cpu)
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

// markdown is the table as the documentation has it.
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
			&b, "| %s | %s | %.0f (%.0f – %.0f) | %.1f | %s |\n", name, r.Work, r.Median, slices.Min(r.Runs),
			slices.Max(r.Runs), r.CPU, r.Settings,
		)
	}
	return b.String()
}

// start starts a peer's process and waits until it can work.
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
	answer, err := p.answer()
	if err != nil {
		return err
	}
	version, ready := strings.CutPrefix(answer, "ready ")
	if !ready {
		return errors.New(strings.TrimPrefix(answer, "cannot "))
	}
	p.version = version
	for _, work := range []string{"five", "one"} {
		if _, err := p.ask(work, warmUp, warmUp); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) answer() (string, error) {
	select {
	case line, open := <-p.lines:
		if !open {
			return "", errors.New("its process has ended")
		}
		return line, nil
	case <-time.After(patient):
		return "", fmt.Errorf("it did not answer within %s", patient)
	}
}

// ask runs work in a peer, and returns the duration in seconds.
func (p *peer) ask(work string, n, atOnce int) (took float64, err error) {
	if _, err := fmt.Fprintln(p.in, work, n, atOnce); err != nil {
		return 0, err
	}
	answer, err := p.answer()
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(answer, "done %f", &took); err != nil {
		return 0, errors.New(answer)
	}
	return took, nil
}

// run also returns the processor time of the peer's processes and of the database server.
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
	if took, err = p.ask(work, n, atOnce); err != nil {
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
	_ = p.in.Close() // each ends with its input
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
		"sojourn-sqlite": openSojourn, "sojourn-postgres": openSojourn, "river": openRiver, "restate": openRestate,
		"temporal": openTemporal,
	}[name]
	if open == nil {
		return fmt.Errorf("there is no peer %q", name)
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
