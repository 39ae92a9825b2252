package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// These are the values of replayed.Outcome.
const (
	replayOK           = "ok"
	replayFailed       = "failed"
	replayUnregistered = "unregistered" // this binary does not have the workflow type
)

// replayed is the result of the replay of one history.
type replayed struct {
	File         string `json:"file,omitempty"` // empty: the history was read from the app
	WorkflowType string `json:"workflow_type"`
	WorkflowID   string `json:"workflow_id"`
	RunID        string `json:"run_id"`
	Events       int    `json:"events"`
	Outcome      string `json:"outcome"`
	Message      string `json:"message,omitempty"`
}

func (p *program) replayCommand() *cobra.Command {
	var filter string
	var limit int
	c := &cobra.Command{
		Use: "replay [FILE|DIR]...", Short: "Replay recorded histories with the workflows of this binary",
		Long: "Replay recorded histories with the workflows of this binary: files that sojourn workflow export has written, " +
			"all .json files below directories, or with --query the histories of runs of the app. " +
			"The exit code is 1 if the code does not fit a history or lacks its workflow type, so that a pipeline can check a " +
			"build before it is deployed.",
		Example: "  sojourn replay testdata/histories\n" +
			"  sojourn replay --query \"WorkflowType = 'order' AND Status = 'running'\" --limit 500",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && filter == "":
				return usageErr(c, errors.New("name files or directories, or set --query"))
			case len(args) > 0 && filter != "":
				return usageErr(c, errors.New("--query cannot be combined with files"))
			case limit < 1:
				return usageErr(c, errors.New("--limit must be at least 1"))
			}
			var results []replayed
			add := func(r replayed) error {
				results = append(results, r)
				if asJSON(c) {
					return nil
				}
				return p.printReplayed(r)
			}
			err := p.replayFiles(args, add)
			if filter != "" {
				err = p.replayRuns(c, filter, limit, add)
			}
			if err != nil {
				return err
			}
			if asJSON(c) {
				if err := p.printJSON(results); err != nil {
					return err
				}
			}
			return replayVerdict(results)
		},
	}
	c.Flags().StringVar(&filter, "query", "", "filter of the runs whose histories are replayed, as in workflow list --filter")
	c.Flags().IntVar(&limit, "limit", 100, "maximum number of runs to replay with --query, newest first")
	return c
}

// replayVerdict returns an error if a history does not fit the code, if the binary does not have the workflow type of a
// history, or if no history was selected.
func replayVerdict(results []replayed) error {
	count := map[string]int{}
	for _, r := range results {
		count[r.Outcome]++
	}
	switch {
	case count[replayFailed] > 0:
		return fmt.Errorf("%d of %d histories do not fit the code", count[replayFailed], len(results))
	case count[replayUnregistered] > 0:
		return fmt.Errorf("%d of %d histories are of workflow types that this binary does not have",
			count[replayUnregistered], len(results))
	case len(results) == 0:
		return errors.New("no history was replayed")
	}
	return nil
}

func (p *program) printReplayed(r replayed) error {
	line := fmt.Sprintf("%s %s, run %s: %s, %d events", r.WorkflowType, r.WorkflowID, r.RunID, r.Outcome, r.Events)
	if r.File != "" {
		line = r.File + ": " + line
	}
	if r.Message != "" {
		line += ": " + r.Message
	}
	return p.printf("%s", line)
}

// replayFiles replays the histories of files, and of all .json files below directories.
func (p *program) replayFiles(paths []string, add func(replayed) error) error {
	for _, path := range paths {
		files := []string{}
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && (file == path || strings.HasSuffix(file, ".json")) {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			return err
		}
		slices.Sort(files)
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			r := p.replay(raw)
			r.File = file
			if err := add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// replayRuns replays the histories of the runs that the filter selects.
func (p *program) replayRuns(c *cobra.Command, filter string, limit int, add func(replayed) error) error {
	items, err := p.readList(c, listing{
		path: "/api/workflows", member: "workflows", page: 200, limit: limit,
		query: url.Values{"query": {filter}, "kind": {"workflow"}, "values": {string(protocol.ValuesNone)}},
	})
	if err != nil {
		return err
	}
	for _, item := range items {
		var v protocol.RunView
		if err := json.Unmarshal(item, &v); err != nil {
			return fmt.Errorf("read the response: %w", err)
		}
		var raw json.RawMessage
		if err := p.call(c, http.MethodGet, runPath(v.WorkflowID, v.RunID)+"/history/export", nil, &raw); err != nil {
			return err
		}
		if err := add(p.replay(raw)); err != nil {
			return err
		}
	}
	return nil
}

// replay replays one history: the document of an export, or the array of its events.
func (p *program) replay(raw []byte) replayed {
	type event struct {
		Payload struct {
			WorkflowType string `json:"workflow_type"`
			WorkflowID   string `json:"workflow_id"`
			RunID        string `json:"run_id"`
		} `json:"payload"`
	}
	var export struct {
		Events []event `json:"history_events"`
	}
	if json.Unmarshal(raw, &export) != nil {
		_ = json.Unmarshal(raw, &export.Events) // Replay reports what is wrong
	}
	r := replayed{Events: len(export.Events), Outcome: replayFailed}
	if r.Events == 0 {
		r.Message = "no history: want the document of sojourn workflow export, or an array of events"
		return r
	}
	first := export.Events[0].Payload
	r.WorkflowType, r.WorkflowID, r.RunID = first.WorkflowType, first.WorkflowID, first.RunID
	def, ok := p.registry.FindWorkflow(r.WorkflowType)
	if !ok {
		r.Outcome = replayUnregistered
		return r
	}
	o := workflow.ReplayOptions{Names: p.registry, Codecs: p.registry.Codecs()}
	if err := workflow.Replay(def, o, raw); err != nil {
		r.Message = err.Error()
		return r
	}
	r.Outcome = replayOK
	return r
}
