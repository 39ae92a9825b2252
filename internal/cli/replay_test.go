package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Exports are replayed by the code of the binary: from files, from a directory and from the app. A history that the
// code does not fit is reported with exit code 1, and so is an empty selection.
func TestHistoriesAreReplayedFromFilesAndFromTheApp(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), address(t)
	_, c, _ := dev(t, dir, addr, nil)
	s := shell{t, dir, env{"SOJOURN_APP_URL": c.base}}
	s.try(0, "hello Ada", "workflow", "start", "tour.greeting", "--id", "g", "--input", `["Ada"]`, "--wait")
	s.try(0, "started_new", "workflow", "start", "tour.approval", "--id", "open")
	histories := filepath.Join(dir, "histories")
	if err := os.Mkdir(histories, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(histories, "g.json")
	s.try(0, "", "workflow", "export", "g", "-o", file)
	s.try(0, "tour.greeting g, run ", "replay", file)
	s.try(0, "ok, ", "replay", histories)
	s.try(0, "open, run ", "replay", "--query", "WorkflowType = 'tour.approval'")
	s.try(1, "no history was replayed", "replay", "--query", "WorkflowType = 'nobody'")
	s.try(2, "set --query", "replay")
	s.try(2, "cannot be combined", "replay", file, "--query", "x")
	var results []struct {
		File    string `json:"file"`
		Outcome string `json:"outcome"`
		Events  int    `json:"events"`
	}
	if s.read(&results, "replay", histories); len(results) != 1 || results[0].Outcome != "ok" || results[0].Events < 5 {
		t.Errorf("%+v", results)
	}

	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"other.json":   strings.ReplaceAll(string(raw), `"say"`, `"other"`), // another activity
		"type.json":    strings.ReplaceAll(string(raw), "tour.greeting", "tour.removed"),
		"invalid.json": "{}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.try(1, "unregistered", "replay", filepath.Join(dir, "type.json"))
	s.try(1, "1 of 2 histories are of workflow types that this binary does not have", "replay", histories,
		filepath.Join(dir, "type.json"))
	s.try(1, "no history", "replay", filepath.Join(dir, "invalid.json"))
	s.try(1, "1 of 2 histories do not fit the code", "replay", histories, filepath.Join(dir, "other.json"))
}
