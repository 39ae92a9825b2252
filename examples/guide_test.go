package examples_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/examples/sessions/device"
	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/worker"
)

// fence is a block of code in a document, with its language.
var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// blocks are the blocks of some languages in a document.
func blocks(t *testing.T, document string, languages ...string) (found []string) {
	t.Helper()
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(raw), -1) {
		for _, l := range languages {
			if m[1] == l {
				found = append(found, m[2])
			}
		}
	}
	return found
}

// The guide shows how short the workers are.
func TestGuideStatesTheWorkerListTimes(t *testing.T) {
	for file, most := range map[string]int{"http-worker/replay.py": 150, "curl-worker/worker.sh": 50} {
		if raw, err := os.ReadFile(file); err != nil || strings.Count(string(raw), "\n") >= most {
			t.Errorf("%s has %d lines: %v", file, strings.Count(string(raw), "\n"), err)
		}
	}
	docnumbers.In(t, "guide/histories.md", "[replay.py](../../examples/http-worker/replay.py), less than {} lines.", 150)
	docnumbers.In(t, "guide/workers-in-any-language.md", "activities in less than {} lines of shell", 50)
}

func TestCodeOfTheGuideIsInTheExamples(t *testing.T) {
	t.Parallel()
	var sources []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch filepath.Ext(path) {
		case ".go", ".mjs", ".py", ".sh", ".ts":
			raw, err := os.ReadFile(path)
			sources = append(sources, string(raw))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(sources, "\n")
	documents, err := filepath.Glob("../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, d := range append(documents, "../README.md") {
		for _, code := range blocks(t, d, "go", "js", "ts", "python") {
			if seen++; !strings.Contains(all, code) {
				t.Errorf("%s: this stands in no example:\n%s", d, code)
			}
		}
	}
	if seen < 20 {
		t.Errorf("found only %d blocks of code", seen)
	}
}

func TestStepsOfTheWorkerProtocolWork(t *testing.T) {
	t.Parallel()
	for _, needed := range []string{"bash", "curl", "python3"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("no %s: %v", needed, err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	c := shell(t, a, strings.Join(blocks(t, "../docs/guide/workers-in-any-language.md", "sh"), "echo\n"))
	c.Dir = ".."
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := 0
	for _, want := range []string{
		`"registered":true`, "started_new g1", `"run_status":"waiting"`, `"can_continue":true`, `"recorded":true`,
		`"reason":"already_completed"`,
		`"reason":"stale_attempt"`, `"run_status":"completed"`, `"hello world"`, `["world"]`, `"outcome":"created"`,
		`"outcome":"heartbeat_recorded"`,
		`"outcome":"released"`, `"outcome":"reacquired"`, `"outcome":"closed"`, `"acknowledged":true`,
		`"outcome":"deregistered"`,
	} {
		i := strings.Index(string(out[at:]), want)
		if i < 0 {
			t.Fatalf("no %s after what came before, in\n%s", want, out)
		}
		at += i + len(want)
	}
}

func TestSchedulesAsInTheGuide(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	prints(
		t, a, blocks(t, "../docs/guide/schedules.md", "sh")[0], "02***,Europe/Berlin", "thebooksoftheday", "triggered",
		"paused", "status_not_triggerable", "resumed", "ScheduleTriggered", "SchedulePaused", "ScheduleResumed", "deleted",
	)
}

// shell returns a command that runs a script of the guide against an app. In the script, "sojourn" is the binary of
// examples/hello.
func shell(t *testing.T, a *apptest.App, script string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	script = "set -euo pipefail\nsojourn() { '" + build(t, "hello") + "' \"$@\"; }\n" + script
	c := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(script, "http://127.0.0.1:7700", a.URL()))
	c.Env = append(os.Environ(), "SOJOURN_APP_URL="+a.URL(), "SOJOURN_DATA_DIR="+t.TempDir())
	return c
}

// varying matches the parts of an output that differ between two runs: run IDs and times.
var varying = regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b|\d{4}-\d\d-\d\dT[\d:.]+Z`)

// checkConsole runs the commands in a page's console blocks that begin with one of the prefixes, and compares their
// output with the lines below them, if there are any. It fails if there are fewer than least such commands.
func checkConsole(t *testing.T, a *apptest.App, page string, least int, prefixes ...string) {
	t.Helper()
	ran := 0
	for _, block := range blocks(t, page, "console") {
		for _, step := range strings.Split(strings.TrimPrefix(block, "$ "), "\n$ ") {
			command, want, _ := strings.Cut(step, "\n")
			if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(command, p) }) {
				continue
			}
			ran++
			out, err := shell(t, a, command).CombinedOutput()
			got := varying.ReplaceAllString(strings.TrimSpace(string(out)), "…")
			if want = varying.ReplaceAllString(strings.TrimSpace(want), "…"); err != nil || want != "" && got != want {
				t.Errorf("%s: %s prints, %v:\n%s\nthe page has:\n%s", page, command, err, got, want)
			}
		}
	}
	if ran < least {
		t.Errorf("%s: only %d commands were run", page, ran)
	}
}

func TestCommandsInTheGuidePrintWhatItShows(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	for page, commands := range map[string]int{"getting-started.md": 3, "command-line.md": 4, "workflows-in-go.md": 4} {
		checkConsole(
			t, a, "../docs/guide/"+page, commands, "sojourn workflow start tour", "sojourn workflow describe g1",
			"sojourn workflow history g1", "sojourn workflow update b", "sojourn workflow query b",
		)
	}
}

// The commands for operators on these pages work as they are, on a worker with a session.
func TestCommandsForOperatorsInTheGuideWork(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) { o.Capabilities = []string{device.Printer} })
	prints(t, a, `sojourn workflow start device --input '[{"device": "p1", "pages": 3}]' --wait`, `"first":1`)
	checkConsole(t, a, "../docs/guide/sessions.md", 6, "sojourn sessions")
	for _, page := range []struct {
		name   string
		before string
		prints []string
	}{
		{"quotas.md", "sojourn namespaces create billing\n", []string{"billing", "open_runs"}},
		{"runs.md", "sojourn workflow start tour.greeting --input '[\"Ada\"]' --wait\n", []string{"helloAda", "Amount"}},
	} {
		prints(t, a, page.before+strings.Join(blocks(t, "../docs/guide/"+page.name, "sh"), ""), page.prints...)
	}
	// Last: it pins new runs to a build.
	checkConsole(t, a, "../docs/guide/queues.md", 8, "sojourn queues")
}

func TestRequestsInGettingStartedWork(t *testing.T) {
	t.Parallel()
	for _, needed := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("no %s: %v", needed, err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	script := strings.Join(blocks(t, "../docs/guide/getting-started.md", "sh"), "")
	prints(t, a, script, `"workflow_id":"g2"`, `"outcome":"started_new"`, `"workflow_type":"tour.greeting"`)
}

// prints runs a script of the guide and searches its output for texts in this order, ignoring spaces.
func prints(t *testing.T, a *apptest.App, script string, all ...string) {
	t.Helper()
	out, err := shell(t, a, script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rest := strings.Join(strings.Fields(string(out)), "")
	for _, want := range all {
		_, behind, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %s after what came before, in\n%s", want, out)
		}
		rest = behind
	}
}

// relative is a relative link of a document, without its anchor.
var relative = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	documents := []string{"../README.md"}
	for _, root := range []string{"../docs", "."} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				documents = append(documents, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range documents {
		raw, err := os.ReadFile(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range relative.FindAllStringSubmatch(fence.ReplaceAllString(string(raw), ""), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(d), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", d, m[1])
			}
		}
	}
	if len(documents) < 15 {
		t.Errorf("found only %d documents", len(documents))
	}
}
