package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// starting holds the flags that starting a workflow and starting an activity run have in common.
type starting struct {
	run              protocol.StartRequest
	memo, attributes string
	headers          []string
	priority         int
	existing         bool
}

func (s *starting) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.run.WorkflowID, "id", "", "workflow ID; default: a new ULID")
	f.StringVar(&s.run.TaskQueue, "queue", "", "task queue; default: default")
	f.StringVar(&s.run.BusinessKey, "business-key", "", "business key, such as an order number")
	f.StringVar(&s.memo, "memo", "", "memo, a JSON object that is stored with the run")
	f.StringVar(&s.attributes, "search-attributes", "", "search attributes, a JSON object")
	headerFlag(c, &s.headers)
	f.BoolVar(&s.existing, "use-existing", false, "return the open run with this workflow ID, if one exists")
	f.StringVar(
		&s.run.ReusePolicy, "reuse-policy", "",
		"whether the ID of a closed run may be used again: reject, allow-after-failure or allow; default: reject",
	)
	f.StringVar(
		&s.run.ConflictPolicy, "conflict-policy", "",
		"what to do if a run with this ID is open: fail, use-existing or terminate-existing; default: fail",
	)
	f.IntVar(&s.priority, "priority", 5, "priority, from 0 (first) to 9 (last)")
	f.StringVar(&s.run.FairnessKey, "fairness-key", "", "fairness key: the keys of a queue share its workers by their weights")
	f.IntVar(&s.run.FairnessWeight, "fairness-weight", 0, "weight of the fairness key, 1 to 1000; default: 1")
}

// read sets the members of the run from the flags, and generates an ID if there is none.
func (s *starting) read(p *program, c *cobra.Command) (run protocol.StartRequest, err error) {
	run = s.run
	if run.Memo, err = p.document(c, "memo", s.memo); err != nil {
		return run, err
	}
	if run.SearchAttributes, err = p.document(c, "search-attributes", s.attributes); err != nil {
		return run, err
	}
	if run.Headers, err = headers(s.headers); err != nil {
		return run, err
	}
	if c.Flags().Changed("priority") {
		run.Priority = &s.priority
	}
	existing := s.existing
	if run.WorkflowID == "" { // the ID is new and random, so an open run with it was started by this command
		run.WorkflowID, existing = ulid.Make().String(), run.ConflictPolicy == ""
	}
	run.IdempotencyKey = ulid.Make().String()
	switch {
	case s.existing && run.ConflictPolicy != "":
		return run, usageErr(c, errors.New("--use-existing cannot be combined with --conflict-policy"))
	case existing:
		run.DuplicatePolicy = protocol.ConflictUseExisting
	}
	return run, nil
}

// headerFlag adds the flag for headers to a command.
func headerFlag(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, "header", nil, "header as NAME=VALUE; may be repeated")
}

// headers returns the headers of a request from the values of the flag.
func headers(values []string) (history.Headers, error) {
	var h history.Headers
	for _, pair := range values {
		name, value, ok := strings.Cut(pair, "=")
		switch _, repeated := h[name]; {
		case !ok || name == "":
			return nil, usageError{fmt.Errorf("--header requires NAME=VALUE, not %q", pair)}
		case repeated:
			return nil, usageError{fmt.Errorf("--header %s is set twice", name)}
		case h == nil:
			h = history.Headers{}
		}
		h[name] = value
	}
	return h, nil
}

// startTimes holds the flags with durations of the commands that start a workflow.
type startTimes struct{ execution, run, delay time.Duration }

func (t *startTimes) flags(c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&t.execution, "execution-timeout", 0, "maximum duration of the workflow over all its runs")
	f.DurationVar(&t.run, "run-timeout", 0, "maximum duration of one run")
	f.DurationVar(&t.delay, "delay", 0, "start after this delay")
}

// read sets the members of a start to the values of the flags.
func (t *startTimes) read(in *protocol.StartRequest) (err error) {
	for _, d := range []struct {
		flag  string
		value time.Duration
		to    *int64
	}{
		{"execution-timeout", t.execution, &in.ExecutionTimeout},
		{"run-timeout", t.run, &in.RunTimeout},
		{"delay", t.delay, &in.StartDelay},
	} {
		if *d.to, err = seconds(d.flag, d.value); err != nil {
			return err
		}
	}
	return nil
}
