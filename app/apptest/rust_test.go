package apptest_test

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These tests run the published Rust SDK of the worker protocol. It takes minutes to compile, so they run in make
// interop only: they skip unless SOJOURN_TEST_REQUIRE names rust.
const (
	rustDir   = "../../interop/rust"
	rustQueue = "rust"
)

// rust has the path of a built program, one of interop/rust or of the SDK.
func rust(t *testing.T, name string) string {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("SOJOURN_TEST_REQUIRE"), ","), "rust") {
		t.Skip("no rust: SOJOURN_TEST_REQUIRE does not name it; make interop does")
	}
	dir, err := rustPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// rustExamples are the examples of the published package that need only a server and exit on their own. The other
// examples are left out: local_activities, nexus_cooperation, runtime_payloads and sticky_execution need optional
// features that the app does not announce; continue_as_new and condition_search_attributes are workers at a fixed
// address that run until they are killed (interop/rust covers both features); parallel_saga, workflow_testing,
// metrics_prometheus and avro_value_benchmark contact no server.
var rustExamples = []string{"hello_world", "activity_options", "worker_sessions", "workflow_pagination"}

// rustPrograms builds the examples once; build artifacts stay in the user's cache directory.
var rustPrograms = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "sojourn-tests", "rust")
	build := exec.Command("cargo", "build", "--locked", "--target-dir", filepath.Join(cache, "target"))
	build.Dir = rustDir
	install := exec.Command("cargo", "install", "--locked", "--debug", "--version", "4.10.2", "--root", filepath.Join(
		cache, "target",
	),
		"--target-dir", filepath.Join(cache, "own"), "durable-workflow", "--bin", "durable-workflow-replay-conformance",
		"--bin", "durable-workflow-memo-restart")
	for _, c := range []*exec.Cmd{build, install} {
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return "", err
		}
	}
	programs := filepath.Join(cache, "target", "debug")
	if err := buildExamples(filepath.Join(cache, "own"), programs); err != nil {
		return "", err
	}
	for _, own := range []string{"durable-workflow-replay-conformance", "durable-workflow-memo-restart"} {
		link := filepath.Join(programs, own)
		_ = os.Remove(link) // of an earlier build, if there was one
		if err := os.Symlink(filepath.Join(cache, "target", "bin", own), link); err != nil {
			return "", err
		}
	}
	return programs, nil
})

// buildExamples compiles the examples from the sources of the published package and copies them to the programs.
func buildExamples(target, programs string) error {
	metadata := exec.Command("cargo", "metadata", "--locked", "--format-version", "1")
	metadata.Dir, metadata.Stderr = rustDir, os.Stderr
	raw, err := metadata.Output()
	if err != nil {
		return err
	}
	var all struct {
		Packages []struct {
			Name     string
			Manifest string `json:"manifest_path"`
		}
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	args := []string{"build", "--locked", "--target-dir", target}
	for _, p := range all.Packages {
		if p.Name == "durable-workflow" {
			args = append(args, "--manifest-path", p.Manifest)
		}
	}
	for _, name := range rustExamples {
		args = append(args, "--example", name)
	}
	build := exec.Command("cargo", args...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	for _, name := range rustExamples {
		link := filepath.Join(programs, name)
		_ = os.Remove(link) // of an earlier build
		if err := os.Symlink(filepath.Join(target, "debug", "examples", name), link); err != nil {
			return err
		}
	}
	return nil
}

// rustWork starts a worker and returns when the app knows it.
func rustWork(t *testing.T, a *apptest.App, id string, args ...string) *pythonWorker {
	t.Helper()
	return launchWorker(t, a, id, exec.Command(rust(t, "sojourn-interop"), append([]string{
		"worker", a.URL(), pythonToken, rustQueue, id,
	}, args...)...))
}

func rustCases(t *testing.T, a *apptest.App, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	judge(
		t,
		exec.CommandContext(
			ctx, rust(t, "sojourn-interop"), append([]string{"cases", a.URL(), pythonToken, rustQueue}, names...)...,
		),
		names,
	)
}

// W3: worker and client of the published SDK, through the core list.
func TestRustSDK(t *testing.T) {
	rust(t, "sojourn-interop")
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		w := rustWork(t, a, "rs-1", "50")
		rustCases(t, a)
		w.stop()
		if _, err := a.View().
			Worker(t.Context(), "default", "rs-1"); protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
			t.Errorf("the stopped worker is still registered: %v", err)
		}
	})
}

// The SDK's own programs for servers.
func TestRustSDKConformancePrograms(t *testing.T) {
	for _, name := range []string{"durable-workflow-replay-conformance", "durable-workflow-memo-restart"} {
		path := rust(t, name)
		t.Run(name, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				a := startPython(t, database, "")
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				out, err := exec.CommandContext(ctx, path, "--server-url", a.URL(), "--token", pythonToken).CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}

// The examples of the published package run unmodified: workflows, activities with retries, heartbeats and timeouts,
// sessions with options, listings and histories.
func TestExamplesOfTheRustSDK(t *testing.T) {
	rust(t, "hello_world")
	results := map[string]string{
		"hello_world": "Hello, Rust!", "activity_options": `"status":"completed"`, "worker_sessions": "resource_generation",
		"workflow_pagination": "read 3 workflow summaries",
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		for _, name := range rustExamples {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			c := exec.CommandContext(ctx, rust(t, name))
			c.Env = append(os.Environ(), "DURABLE_WORKFLOW_SERVER_URL="+a.URL(), "DURABLE_WORKFLOW_TOKEN="+pythonToken,
				"DURABLE_WORKFLOW_AUTH_TOKEN="+pythonToken)
			out, err := c.CombinedOutput()
			cancel()
			if err != nil || !strings.Contains(string(out), results[name]) {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	})
}

func TestOneOfTwoRustWorkersIsKilled(t *testing.T) {
	rust(t, "sojourn-interop")
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		workers := map[string]*pythonWorker{"rs-1": rustWork(t, a, "rs-1", "50"), "rs-2": rustWork(t, a, "rs-2", "50")}
		r := runOn(t, a, rustQueue, "steps", 8)
		victim := pendingOn(t, a, r, "nap")
		workers[victim].kill()
		survivor := map[string]string{"rs-1": "rs-2", "rs-2": "rs-1"}[victim]
		var whereabouts []string
		output(t, a, r, &whereabouts)
		if len(whereabouts) != 8 || whereabouts[7] != survivor {
			t.Errorf("steps ran on %v, %s was killed", whereabouts, victim)
		}
		workers[survivor].stop()
	})
}

// A killed process sends no report: its attempt ends with its start-to-close timeout, without which it would wait for
// the contract's lease of 300 s, and the session with its own lease.
func TestARustSessionMovesWhenItsOwnerIsKilled(t *testing.T) {
	rust(t, "sojourn-interop")
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		workers := map[string]*pythonWorker{"rs-1": rustWork(t, a, "rs-1", "50"), "rs-2": rustWork(t, a, "rs-2", "50")}
		const lease, pause = 3, 500 // seconds, milliseconds
		r := runOn(t, a, rustQueue, "in_session", "held", 8, lease, pause)
		victim := pendingOn(t, a, r, "keep")
		workers[victim].kill()
		var got []kept
		output(t, a, r, &got)
		moved := slices.IndexFunc(got, func(k kept) bool { return k.Worker != victim })
		if len(got) != 8 || moved < 0 {
			t.Fatalf("the holder %s was killed, and the session went: %+v", victim, got)
		}
		for i, k := range got[moved:] {
			if k.PID != got[moved].PID || len(k.Kept) != i+1 {
				t.Errorf("step %d of the new holder: %+v", i, k)
			}
		}
		survivor := got[moved].Worker
		v, err := a.View().Session(t.Context(), "default", "held")
		if err != nil || v.LeaseOwner == nil || *v.LeaseOwner != survivor {
			t.Errorf("the session is %+v, %v", v, err)
		}
		// when it is stopped it closes its sessions, and fails if a lease has expired meanwhile
		workers[survivor].kill()
	})
}

// Only polls are in flight here: a report that fails at the restart would end a worker of this SDK, and its supervisor
// would have to restart it.
func TestTheAppRestartsWhileRustPolls(t *testing.T) {
	rust(t, "sojourn-interop")
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		u, err := url.Parse(a.URL())
		if err != nil {
			t.Fatal(err)
		}
		w := rustWork(t, a, "rs-1", "50")
		idle := runOn(t, a, rustQueue, "sleeping", 5)
		until(t, "it sleeps", func() bool {
			v, err := a.View().Describe(t.Context(), idle)
			return err == nil && v.Status == "waiting"
		})
		a.Stop()
		a = startPython(t, database, u.Host)
		var text string
		output(t, a, idle, &text)
		if text != "awake" {
			t.Errorf("the sleeping workflow returned %q", text)
		}
		rustCases(t, a, "retries", "a_session_keeps_its_state")
		w.stop()
	})
}
