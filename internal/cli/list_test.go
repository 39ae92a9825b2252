package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Lists in a shell show whether there are more rows, why runs failed, and a one-word status, in any order. IDs can be
// completed.
func TestListsHaveReadableColumns(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(0, "", "workflow", "result", "sample")
	for _, id := range []string{"zeta", "alpha", "user@example.com", "a/b"} {
		s.try(0, "started_new", "workflow", "start", "nothing.runs.this", "--id", id)
	}
	s.try(0, "terminated", "workflow", "terminate", "a/b", "--reason", "the customer went away")
	s.try(0, "showing the first 2", "workflow", "list", "--limit", "2")
	if out := s.try(0, "", "workflow", "list"); strings.Contains(out, "showing the first") ||
		strings.Contains(out, "pending") || !strings.Contains(out, "running") {
		t.Errorf("listed %s", out)
	}
	s.try(0, "the customer went away", "workflow", "list", "--status", "terminated")
	s.try(0, "none", "workflow", "list", "--status", "failed") // a terminated run did not fail
	s.try(1, "timed out", "activity", "run", "shown.progress", "--id", "slow", "--start-to-close", "1s")
	s.try(1, "the first fault", "activity", "run", "shown.joined", "--id", "fault")
	for word, id := range map[string]string{"failed": "fault", "timed_out": "slow", "terminated": "a/b"} {
		var listed []struct {
			ID string `json:"workflow_id"`
		}
		if s.read(&listed, "workflow", "list", "--status", word); len(listed) != 1 || listed[0].ID != id {
			t.Errorf("--status %s lists %+v, want %s alone", word, listed, id)
		}
	}
	for word, colour := range map[string]string{"timed_out": "\x1b[31m", "running": "\x1b[34m", "completed": "\x1b[32m"} {
		s.coloured(word, colour, "workflow", "list", "--status", word)
	}
	out := s.try(0, "", "workflow", "list", "--sort", "workflow id", "--status", "running")
	if a, z := strings.Index(out, "alpha"), strings.Index(out, "zeta"); a < 0 || z < a {
		t.Errorf("sorted: %s", out)
	}
	if out = s.try(0, "", "workflow", "list", "--sort=-workflow id", "--status", "running"); strings.Index(
		out, "zeta",
	) > strings.Index(out, "alpha") {
		t.Errorf("sorted the other way: %s", out)
	}
	s.try(2, "unknown column \"colour\"; the columns are workflow id, run", "workflow", "list", "--sort", "colour")
	for _, c := range []struct {
		offers string
		typed  []string
	}{
		{"user@example.com", []string{"workflow", "describe", "user"}},
		{"alpha", []string{"workflow", "signal", ""}},
		{"tour.basket", []string{"workflow", "start", "tour.b"}},
		{"timed_out", []string{"workflow", "list", "--status", "t"}},
		{"tour.basket", []string{"workflow", "list", "--type", "tour."}},
		{"local", []string{"workers", "describe", ""}},
	} {
		offered := strings.Split(s.try(0, "", append([]string{"__complete"}, c.typed...)...), "\n")
		if !slices.Contains(offered, c.offers) {
			t.Errorf("%v offers %q, not %s", c.typed, offered, c.offers)
		}
	}
}

// The list of schedules has the number of skipped firings.
func TestTheListOfSchedulesCountsSkippedFirings(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(0, "created busy", "schedules", "create", "busy", "--type", "nothing.runs.this", "--every", "1h")
	s.try(0, "triggered busy", "schedules", "trigger", "busy")
	for range 2 {
		s.try(0, "skipped busy", "schedules", "trigger", "busy")
	}
	out := s.try(0, "SKIPPED", "schedules")
	if !regexp.MustCompile(`busy .* skip\W+1\W+2\W`).MatchString(out) {
		t.Errorf("want 1 fired, 2 skipped:\n%s", out)
	}
}

// The guide and the app name the same execution mode.
func TestTheExecutionModeIsThatOfTheGuide(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	page, err := os.ReadFile("../../docs/guide/socket-workers.md")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(s.env["SOJOURN_APP_URL"] + "/api/worker/settings")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got protocol.WorkerSettings
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	modes := regexp.MustCompile(`"EXECUTION_MODE": "(\w+)"`).FindAllStringSubmatch(string(page), -1)
	for _, m := range modes {
		if m[1] != got.ExecutionMode {
			t.Errorf("the guide names %s, the app %s", m[1], got.ExecutionMode)
		}
	}
	if len(modes) != 2 {
		t.Errorf("the guide names %d modes, want that of the worker and that of the app", len(modes))
	}
}

// With --json every list is one array, whatever the form of the app's response.
func TestListsAreArraysForPrograms(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(0, "created Amount", "search-attributes", "create", "Amount", "int")
	s.try(0, "", "schedules", "create", "nightly", "--type", "nothing.runs.this", "--cron", "0 3 * * *")
	for _, list := range [][]string{
		{"workflow", "list"},
		{"workflow", "runs", "sample"},
		{"workers"},
		{"workers", "drains"},
		{"sessions"},
		{"queues"},
		{"schedules"},
		{"schedules", "history", "nightly"},
		{"namespaces"},
		{"token", "list"},
		{"search-attributes", "list"},
	} {
		var items []map[string]any
		s.read(&items, list...)
		if list[0] != "search-attributes" {
			continue
		}
		if !slices.ContainsFunc(items, func(item map[string]any) bool {
			return item["name"] == "Amount" && item["type"] == "int" && item["of"] == "namespace"
		}) {
			t.Errorf("%v lists %v", list, items)
		}
	}
}

// A list of sessions shows what their tasks wait for, and a list of tokens shows when they expire.
func TestListsOfSessionsAndTokensHaveReadableColumns(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(0, "", "activity", "run", "epoch", "--session", "kept")
	s.try(0, "started_new", "activity", "run", "nobody.runs.this", "--session", "kept", "--detach")
	s.try(0, "session kept is held by worker local, which is busy", "sessions")
	// the wait reason requires a read of the session's tasks
	s.try(0, `which has not registered activity "nobody.runs.this"`, "sessions", "describe", "kept")
	leases := func() (n int) {
		for line := range strings.Lines(s.try(0, "LEASE EXPIRES", "sessions")) {
			if strings.Contains(line, " kept ") {
				n += strings.Count(line, "Z |")
			}
		}
		return n
	}
	held := leases()
	s.try(0, "", "sessions", "close", "kept")
	if over := leases(); held != 1 || over != 0 {
		t.Errorf("a held session shows %d times when its lease expires, an ended one %d, want 1 and 0", held, over)
	}
	ends := time.Now().Add(48 * time.Hour).UTC()
	s.try(0, "", "token", "create", "--name", "ci", "--role", "viewer", "--lasts", "48h")
	var c []string
	for line := range strings.Lines(s.try(0, "LAST USED", "token", "list")) {
		if strings.Contains(line, " ci ") {
			for _, cell := range strings.Split(line, "|") {
				c = append(c, strings.TrimSpace(cell))
			}
		}
	}
	if len(c) != 10 || !strings.HasPrefix(c[7], ends.Format("2006-01-02T")) || c[8] != "never" {
		t.Errorf("a token that is good until %s, and was not used: %q", ends, c)
	}
}
