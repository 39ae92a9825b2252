package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// corpus is the state of a session whose set-up runs in an executor of this binary.
type corpus struct {
	log string
	pid int
}

// loadCorpus fails if the log is a folder.
func loadCorpus(_ context.Context, log string) (*corpus, error) {
	return &corpus{log, os.Getpid()}, appendLine(log, "set up")
}

func closeCorpus(_ context.Context, c *corpus) error { return appendLine(c.log, "tear down") }

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// corpusPID reports whether the activity runs in the process in which the set-up ran.
func corpusPID(ctx context.Context) (bool, error) {
	c, err := activity.State[*corpus](ctx)
	return err == nil && c.pid == os.Getpid(), err
}

func registerIsolatedSetUps(r *worker.Registry) {
	r.Session("corpus.isolated", activity.SessionDefinition{SetUp: loadCorpus, TearDown: closeCorpus, Isolated: true})
	r.Session("corpus.plain", activity.SessionDefinition{SetUp: loadCorpus})
	r.Activity("corpus.isolated", corpusPID, activity.Isolated)
	r.Activity("corpus.plain", corpusPID)
	r.Activity("corpus.exit", func(context.Context) error { os.Exit(3); return nil }, activity.Isolated)
	r.Workflow("corpus", func(ctx workflow.Context, definition, log string, activities []string) ([]string, error) {
		def := workflow.SessionDefinition{Name: definition, Arguments: []any{log}}
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{Definition: &def})
		if err != nil {
			return nil, err
		}
		var all []string
		for _, name := range activities {
			var same bool
			err := s.Execute(ctx, name).Get(ctx, &same)
			if failed, ok := errors.AsType[*workflow.ActivityError](err); ok {
				all = append(all, failed.Type)
				continue
			}
			all = append(all, fmt.Sprint(same))
		}
		return all, s.End(ctx)
	})
}

// An isolated definition sets the session up in its executor, again after the executor ended, and tears it down there.
// Activities in the other process fail with their own type, without another set-up.
func TestAnIsolatedDefinitionSetsUpTheExecutor(t *testing.T) {
	out := t.TempDir()
	a := apptest.Start(t, apptest.Options{})
	start(t, a, ways["socket"](a), func(o *worker.Options) { o.Executors.Write = []string{out} })
	for definition, c := range map[string]struct {
		activities, want string
		setUps           int
	}{
		"corpus.isolated": {
			"corpus.isolated corpus.plain corpus.isolated corpus.exit corpus.isolated",
			"true SessionStateElsewhere true Crashed true", 2,
		},
		"corpus.plain": {"corpus.plain corpus.isolated corpus.plain", "true SessionStateElsewhere true", 1},
	} {
		log := filepath.Join(out, definition)
		started := begin(t, a, "corpus", definition, log, strings.Fields(c.activities))
		got := result[[]string](t, end(t, a, started.RunID))
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", definition, got, c.want)
		}
		if n := setUps(events(t, a, started.RunID)); n != c.setUps {
			t.Errorf("%s: %d set-ups are recorded, want %d", definition, n, c.setUps)
		}
	}
	eventually(t, "the tear-down in the executor", func() bool {
		raw, _ := os.ReadFile(filepath.Join(out, "corpus.isolated"))
		return strings.Count(string(raw), "set up") == 2 && strings.Count(string(raw), "tear down") == 1
	})
}

// A set-up in an executor that fails reports the error of its function.
func TestAFailingIsolatedSetUpFailsTheActivity(t *testing.T) {
	out := t.TempDir()
	a := apptest.Start(t, apptest.Options{})
	start(t, a, ways["http"](a), func(o *worker.Options) { o.Executors.Write = []string{out} })
	last := run(t, a, "corpus", "corpus.isolated", out, []string{"corpus.isolated"})
	if got := result[[]string](t, last); len(got) != 1 || !strings.Contains(got[0], "PathError") {
		t.Errorf("got %q", got)
	}
}
