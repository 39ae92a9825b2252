package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/client"
)

// P21 measures the whole path of a caller that needs the result of a workflow, with separate processor times of the
// caller, of the app with its worker, and of the database server. The caller is a separate process.

const (
	callerName        = "sojourn-bench-caller" // the first argument of that process
	callerConnections = 64
)

// call is a request to the process of the caller: to run a workflow a number of times.
type call struct {
	Workflow string `json:"workflow"`
	Times    int    `json:"times"`
	Separate bool   `json:"separate"` // start, then GET …/result; else both in one request
}

// called is the caller's measurement of a call.
type called struct {
	Elapsed time.Duration   `json:"elapsed"`
	Each    []time.Duration `json:"each"`
	CPU     time.Duration   `json:"cpu"`
	Error   string          `json:"error"`
}

// startsAndWaits returns the scenarios of P21.
func startsAndWaits() (all []scenario) {
	for _, of := range []struct{ transport, workflow string }{{"1 step", "one"}, {"5 steps", "five"}} {
		for _, separate := range []bool{false, true} {
			transport := of.transport + ", 1 request"
			if separate {
				transport = of.transport + ", 2 requests"
			}
			all = append(all, scenario{
				id: "P21", transport: transport, unit: "workflows/s", n: 3_000, quick: 300,
				more: []figure{
					{"ms CPU, client and app", func(s sample) float64 { return s.perOperation(s.client + s.used) }},
					{"ms CPU, client", func(s sample) float64 { return s.perOperation(s.client) }},
					{"ms CPU, app and worker", func(s sample) float64 { return s.perOperation(s.used) }},
					{"ms CPU, database server", func(s sample) float64 { return s.perOperation(s.database) }},
				},
				options: func(o *nodeOptions) { o.worker = "in-process" },
				measure: func(ctx context.Context, n *node, ops int) (sample, error) {
					return n.startAndWait(ctx, call{Workflow: of.workflow, Times: ops, Separate: separate})
				},
			})
		}
	}
	return all
}

// perOperation returns the milliseconds of processor time of one operation.
func (s sample) perOperation(used time.Duration) float64 { return millis(used) / float64(len(s.each)) }

// startAndWait makes the caller's process run workflows.
func (n *node) startAndWait(ctx context.Context, c call) (s sample, err error) {
	if n.caller == nil {
		if n.caller, err = startCaller(n.app.URL()); err != nil {
			return s, err
		}
		n.atEnd = append(n.atEnd, n.caller.close)
	}
	var postmaster int
	if n.server != "" {
		if postmaster, err = serverProcess(ctx, n.server); err != nil {
			return s, err
		}
	}
	database, err := treeCPU(postmaster)
	if err != nil {
		return s, err
	}
	app := cpuTime()
	var out called
	if err := n.caller.call(c, &out); err != nil {
		return s, err
	}
	s.used = cpuTime() - app
	after, err := treeCPU(postmaster)
	if err != nil {
		return s, err
	}
	s.elapsed, s.each, s.client, s.database = out.Elapsed, out.Each, out.CPU, after-database
	return s, allCompleted(ctx, n.app.View())
}

// callerProcess is the process of the caller.
type callerProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

func startCaller(url string) (*callerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &callerProcess{cmd: exec.Command(self)} //nolint:noctx // it ends with its input
	p.cmd.Args, p.cmd.Stderr = []string{callerName, url}, &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	return p, p.cmd.Start()
}

func (p *callerProcess) call(in call, out *called) error {
	if err := json.NewEncoder(p.in).Encode(in); err != nil {
		return err
	}
	if err := p.out.Decode(out); err != nil {
		return fmt.Errorf("process of the caller: %w: %s", err, p.stderr.String())
	}
	if out.Error != "" {
		return errors.New(out.Error)
	}
	return nil
}

func (p *callerProcess) close() error {
	_ = p.in.Close() // this ends the process
	late := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	return p.cmd.Wait()
}

// runCaller is the main function of the caller's process. It serves calls until the end of its input.
func runCaller(url string) error {
	hc := httpClient(callerConnections)
	c, err := client.New(client.Options{URLs: []string{url}, HTTP: hc})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for calls := json.NewDecoder(os.Stdin); ; {
		var one call
		if err := calls.Decode(&one); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		ctx := context.Background()
		args := client.Args{kilobyte}
		run := func() error {
			var result string
			err := c.Execute(ctx, one.Workflow, args, &result, client.StartOptions{})
			if err == nil && result != kilobyte {
				err = fmt.Errorf("unexpected result of %s: %d bytes, want %d", one.Workflow, len(result), len(kilobyte))
			}
			return err
		}
		if one.Separate {
			run = func() error {
				w, err := c.Start(ctx, one.Workflow, args, client.StartOptions{})
				if err != nil {
					return err
				}
				var result string
				return w.Result(ctx, &result)
			}
		}
		used := cpuTime()
		s, err := runMany(one.Times, callerConnections, run)
		r := called{Elapsed: s.elapsed, Each: s.each, CPU: cpuTime() - used}
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// serverProcess returns the first process of a database server on this machine.
func serverProcess(ctx context.Context, server string) (int, error) {
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(ctx) }()
	var backend int
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return 0, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", backend))
	if err != nil {
		return 0, fmt.Errorf("the processor time of the database server can be read only on its machine: %w", err)
	}
	_, parent, _, err := processorTime(string(raw))
	return parent, err
}

// treeCPU returns the processor time of a process, of its descendants, and of those of them that have ended; 0 for
// process 0.
func treeCPU(root int) (time.Duration, error) {
	if root == 0 {
		return 0, nil
	}
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	children, used := map[int][]int{}, map[int]time.Duration{}
	for _, e := range entries {
		raw, err := os.ReadFile(e)
		if err != nil {
			continue // the process has ended
		}
		pid, parent, cpu, err := processorTime(string(raw))
		if err != nil {
			return 0, err
		}
		children[parent], used[pid] = append(children[parent], pid), cpu
	}
	var sum time.Duration
	for todo := []int{root}; len(todo) > 0; {
		sum += used[todo[0]]
		todo = append(todo[1:], children[todo[0]]...)
	}
	return sum, nil
}

// clockTick is the unit of processor times in /proc, on every Linux.
const clockTick = 10 * time.Millisecond

// processorTime parses /proc/PID/stat: the process, its parent, and its processor time with that of ended children.
func processorTime(stat string) (pid, parent int, used time.Duration, err error) {
	// the name between the parentheses may contain any characters
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < 0 {
		return 0, 0, 0, fmt.Errorf("not the content of /proc/PID/stat: %q", stat)
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 15 {
		return 0, 0, 0, fmt.Errorf("not the content of /proc/PID/stat: %q", stat)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(stat[:open]))
	number := func(text string) int {
		n, e := strconv.Atoi(text)
		err = errors.Join(err, e)
		return n
	}
	parent = number(fields[1])
	ticks := 0
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		ticks += number(f)
	}
	return pid, parent, time.Duration(ticks) * clockTick, err
}
