package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	temporal "go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
	temporalworker "go.temporal.io/sdk/worker"
	temporalflow "go.temporal.io/sdk/workflow"

	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// steps is the number of steps of each workload.
var steps = map[string]int{"five": 5, "one": 1}

// asSojourn is the environment variable that makes this process a Sojourn app and worker.
const asSojourn = "COMPARE_AS_SOJOURN"

// sojournMain is the main function of a Sojourn app and worker.
func sojournMain() {
	sojourn.Main(func(r *worker.Registry) {
		for work, n := range steps {
			r.Workflow(work, func(ctx workflow.Context, in string) (string, error) {
				for range n {
					if err := workflow.ExecuteActivity(ctx, "echo", in).Get(ctx, &in); err != nil {
						return "", err
					}
				}
				return in, nil
			})
		}
		for work, n := range map[string]int{fiveLocal: steps["five"], oneLocal: steps["one"]} {
			r.Workflow(work, func(ctx workflow.Context, text string) (_ string, err error) {
				for range n {
					text, err = workflow.Do(ctx, "echo", func(context.Context) (string, error) { return text, nil })
					if err != nil {
						return "", err
					}
				}
				return text, nil
			})
		}
		r.Activity("echo", func(_ context.Context, in string) (string, error) { return in, nil })
	})
}

// openSojourn starts Sojourn as its users do and runs workflows with its client.
func openSojourn(ctx context.Context) (*system, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "compare-*")
	if err != nil {
		return nil, err
	}
	set := []string{
		asSojourn + "=1", "SOJOURN_AUTH=none", "SOJOURN_ADDR=" + addr, "SOJOURN_APP_URL=http://" + addr,
		"SOJOURN_DATA_DIR=" + dir, "SOJOURN_LOG_LEVEL=error",
	}
	if database := os.Getenv("DATABASE"); database != "" {
		set = append(set, "SOJOURN_DATABASE_URL="+database)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stop, err := start(dir, set, self)
	if err != nil {
		return nil, err
	}
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	api, err := client.New(client.Options{URLs: []string{"http://" + addr}, HTTP: hc})
	if err == nil {
		err = until(ctx, func() error { return get(ctx, hc, "http://"+addr+"/readyz") })
	}
	if err != nil {
		stop()
		return nil, err
	}
	version, _ := release.Current(release.Source{Embedded: release.Embedded})
	return &system{version: version, close: stop, do: func(ctx context.Context, work, in string) (out string, err error) {
		return out, api.Execute(ctx, work, client.Args{in}, &out, client.StartOptions{})
	}}, nil
}

// riverStep are the arguments of a job that is one step of the workload.
type riverStep struct {
	ID   string `json:"id"`
	Left int    `json:"left"`
	In   string `json:"in"`
}

// Kind implements river.JobArgs.
func (riverStep) Kind() string { return "step" }

// riverWorker completes a step and inserts the next one in the same transaction, which is the durable form of a chain
// of jobs in River.
type riverWorker struct {
	river.WorkerDefaults[riverStep]
	pool *pgxpool.Pool
	done *sync.Map // channel by ID that receives the result of the last step
}

// Work runs one step.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverStep]) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	next := job.Args
	next.Left--
	if next.Left > 0 {
		if _, err := river.ClientFromContext[pgx.Tx](ctx).InsertTx(ctx, tx, next, nil); err != nil {
			return err
		}
	}
	if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if next.Left == 0 {
		if to, there := w.done.LoadAndDelete(next.ID); there {
			to.(chan string) <- next.In
		}
	}
	return nil
}

// openRiver starts River with its default pauses between fetches.
func openRiver(ctx context.Context) (*system, error) {
	return openRiverWith(ctx, river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 128}},
	})
}

// openFastRiver starts River with the settings of River's benchmark (cmd/river/riverbench), which were chosen for
// throughput.
func openFastRiver(ctx context.Context) (*system, error) {
	return openRiverWith(ctx, river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}},
	})
}

func openRiverWith(ctx context.Context, settings river.Config) (*system, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE"))
	if err != nil {
		return nil, err
	}
	config.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, err
	}
	var done sync.Map
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{pool: pool, done: &done})
	settings.Workers = workers
	c, err := river.NewClient(driver, &settings)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &system{
		version: moduleVersion("github.com/riverqueue/river"),
		close:   func() { _ = c.Stop(ctx); pool.Close() },
		do: func(ctx context.Context, work, in string) (string, error) {
			id, closed := ulid.Make().String(), make(chan string, 1)
			done.Store(id, closed)
			if _, err := c.Insert(ctx, riverStep{ID: id, Left: steps[work], In: in}, nil); err != nil {
				return "", err
			}
			select {
			case out := <-closed:
				return out, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		},
	}, nil
}

// openRestate starts a Restate server and a service in Node, and calls the service through the server.
func openRestate(ctx context.Context) (*system, error) {
	programs, err := filepath.Glob("node_modules/@restatedev/restate-server-*/bin/restate-server")
	if err != nil || len(programs) == 0 {
		return nil, errors.New("the npm package of Restate has no server for this platform")
	}
	program, err := filepath.Abs(programs[0])
	if err != nil {
		return nil, err
	}
	code, err := filepath.Abs("restate.mjs")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "compare-*")
	if err != nil {
		return nil, err
	}
	var addrs [4]string
	for i := range addrs {
		if addrs[i], err = freeAddr(); err != nil {
			return nil, err
		}
	}
	ingress, admin, node, service := addrs[0], addrs[1], addrs[2], addrs[3]
	stopServer, err := start(dir, []string{
		"RESTATE_INGRESS__BIND_ADDRESS=" + ingress, "RESTATE_ADMIN__BIND_ADDRESS=" + admin, "RESTATE_BIND_ADDRESS=" + node,
		"RESTATE_ADVERTISED_ADDRESS=http://" + node, "RESTATE_LISTEN_MODE=tcp", "RESTATE_DISABLE_TELEMETRY=true",
		"RUST_LOG=error",
	}, program, "--base-dir", dir)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(service)
	stopService, err := start(".", []string{"PORT=" + port}, "node", code)
	if err != nil {
		stopServer()
		return nil, err
	}
	stop := func() { stopService(); stopServer() }
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	err = until(ctx, func() error {
		return call(ctx, hc, "http://"+admin+"/deployments", map[string]any{"uri": "http://" + service}, nil)
	})
	if err == nil { // the ingress registers services with a delay
		err = until(ctx, func() error { return call(ctx, hc, "http://"+ingress+"/compare/one", "", nil) })
	}
	if err != nil {
		stop()
		return nil, err
	}
	version, _ := exec.Command(program, "--version").Output()
	return &system{
		version: strings.TrimSpace(strings.TrimPrefix(string(version), "restate-server")), close: stop,
		do: func(ctx context.Context, work, in string) (out string, err error) {
			return out, call(ctx, hc, "http://"+ingress+"/compare/"+work, in, &out)
		},
	}, nil
}

// openTemporal starts a Temporal development server with a database file, and a worker.
func openTemporal(ctx context.Context) (*system, error) {
	program, err := exec.LookPath("temporal")
	if err != nil {
		return nil, errors.New("program \"temporal\" not found in PATH")
	}
	dir, err := os.MkdirTemp("", "compare-*")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	stop, err := start(
		dir, nil, program, "server", "start-dev", "--headless", "--port", port,
		"--db-filename", filepath.Join(dir, "temporal.db"), "--log-level", "error",
	)
	if err != nil {
		return nil, err
	}
	var c temporal.Client
	if err := until(ctx, func() (err error) {
		quiet := temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler))
		c, err = temporal.Dial(temporal.Options{HostPort: addr, Logger: quiet})
		return err
	}); err != nil {
		stop()
		return nil, err
	}
	const queue = "compare"
	w := temporalworker.New(c, queue, temporalworker.Options{})
	for work, n := range steps {
		w.RegisterWorkflowWithOptions(func(ctx temporalflow.Context, in string) (string, error) {
			ctx = temporalflow.WithActivityOptions(ctx, temporalflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			for range n {
				if err := temporalflow.ExecuteActivity(ctx, temporalEcho, in).Get(ctx, &in); err != nil {
					return "", err
				}
			}
			return in, nil
		}, temporalflow.RegisterOptions{Name: work})
	}
	w.RegisterActivity(temporalEcho)
	if err := w.Start(); err != nil {
		stop()
		return nil, err
	}
	version, _ := exec.Command(program, "--version").Output() // temporal version … (Server 1.2.3, UI …)
	_, after, _ := strings.Cut(string(version), "(Server ")
	number, _, _ := strings.Cut(after, ",")
	return &system{
		version: "server " + number + ", SDK " + moduleVersion("go.temporal.io/sdk"),
		close:   func() { w.Stop(); c.Close(); stop() },
		do: func(ctx context.Context, work, in string) (out string, err error) {
			run, err := c.ExecuteWorkflow(ctx, temporal.StartWorkflowOptions{TaskQueue: queue}, work, in)
			if err != nil {
				return "", err
			}
			return out, run.Get(ctx, &out)
		},
	}, nil
}

func temporalEcho(_ context.Context, in string) (string, error) { return in, nil }

// start starts a program with additional environment variables, and returns a function that ends it.
func start(dir string, set []string, program string, args ...string) (stop func(), err error) {
	c := exec.Command(program, args...)
	c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), set...), os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		kill.Stop()
		if strings.HasPrefix(filepath.Base(dir), "compare-") {
			_ = os.RemoveAll(dir)
		}
	}, nil
}

// until retries a function until it succeeds, for up to a minute.
func until(ctx context.Context, try func() error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if err = try(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("not ready within a minute: %w", err)
}

func get(ctx context.Context, hc *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return readResponse(hc, r, nil)
}

func call(ctx context.Context, hc *http.Client, url string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	return readResponse(hc, r, out)
}

func readResponse(hc *http.Client, r *http.Request, out any) error {
	a, err := hc.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	if a.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", a.Status, raw)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// freeAddr returns an address at which no process listens.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// moduleVersion returns the version of a linked module.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return ""
}
