package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// logsPause is the interval at which new log lines are read.
const logsPause = time.Second

// ownID matches generated IDs of activities.
var ownID = regexp.MustCompile(`^[0-9A-Z]{26}-[0-9]+$`)

func (p *program) activityLogs() *cobra.Command {
	var run string
	var attempt int64
	var follow bool
	c := runFlag(&cobra.Command{
		Use:   "logs ID [ACTIVITY]",
		Short: "Print the log of an activity",
		Long: "Print the log lines and the printed output of an activity.\n\n" +
			"ID is a workflow ID or the activity's ID from the history. ACTIVITY is the activity's number in the run, or its type;\n" +
			"the last activity of the type is shown. Without ACTIVITY it is the run's last activity. The log is that of the last\n" +
			"attempt. With --json each line is an object.",
		Example: "  sojourn activity logs order-7 --follow\n" +
			"  sojourn activity logs order-7 charge --attempt 1",
		ValidArgsFunction: p.workflowIDs(),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageErr(c, fmt.Errorf("%s requires a workflow ID and accepts one activity (arguments given: %d)", c.CommandPath(), len(args)))
			}
			return nonEmptyArgs(c, args, workflowIDArg, "activity")
		},
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("attempt") && attempt < 1 {
				return usageError{errors.New("--attempt must be at least 1")}
			}
			task, err := p.activityOf(c, args, run)
			if err != nil {
				return err
			}
			return p.showLogs(c, task, attempt, follow)
		},
	}, &run)
	c.Flags().Int64Var(&attempt, "attempt", 0, "attempt number; default: the last attempt")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the activity closes")
	return c
}

// activityOf returns the ID of the activity that the arguments name.
func (p *program) activityOf(c *cobra.Command, args []string, run string) (string, error) {
	id, which := args[0], strings.Join(args[1:], "")
	current, err := p.currentRun(c, id, run)
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonInstanceNotFound && which == "" && run == "" && ownID.MatchString(id):
		return id, nil
	case err != nil:
		return "", err
	}
	if _, err := strconv.ParseUint(which, 10, 63); err == nil {
		return current + "-" + which, nil
	}
	events, err := p.readList(c, listing{
		path: runPath(id, current) + "/history", member: "events", page: 1000,
		query: url.Values{"values": {string(protocol.ValuesNone)}},
	})
	if err != nil {
		return "", err
	}
	task := ""
	for _, raw := range events {
		var e struct {
			Type    string `json:"event_type"`
			Payload struct {
				ID   string `json:"activity_execution_id"`
				Type string `json:"activity_type"`
			} `json:"payload"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return "", fmt.Errorf("read the response: %w", err)
		}
		if e.Type == "ActivityScheduled" && (which == "" || e.Payload.Type == which) {
			task = e.Payload.ID
		}
	}
	switch {
	case task != "":
		return task, nil
	case which != "":
		return "", fmt.Errorf("run %s has no activity %s", current, which)
	}
	return "", fmt.Errorf("run %s has no activity yet", current)
}

// showLogs prints the logs of an attempt. With follow it also prints new lines, including those of later attempts
// unless the caller selected one.
func (p *program) showLogs(c *cobra.Command, task string, attempt int64, follow bool) error {
	of, after := attempt, int64(0)
	for {
		q := url.Values{"after": {strconv.FormatInt(after, 10)}}
		if of > 0 {
			q.Set("attempt", strconv.FormatInt(of, 10))
		}
		var a protocol.ActivityLogs
		err := p.call(c, http.MethodGet, "/api/tasks/"+url.PathEscape(task)+"/logs?"+q.Encode(), nil, &a)
		if err == nil {
			err = p.printLogLines(c, &a)
		}
		if err != nil {
			return err
		}
		if last := len(a.Attempts) - 1; of == 0 && last >= 0 {
			of = a.Attempts[last].Number
		} else if attempt == 0 && !a.Running && !a.More && last >= 0 && a.Attempts[last].Number > of {
			of, after = a.Attempts[last].Number, 0
			if err := p.printAttempt(c, of); err != nil {
				return err
			}
			continue
		}
		switch after = a.Next; {
		case a.More:
			continue
		case !follow || !a.Running && (attempt > 0 || !a.Open):
			return nil
		}
		select {
		case <-time.After(logsPause):
		case <-c.Context().Done():
			if err := context.Cause(c.Context()); !errors.Is(err, process.ErrStopped) {
				return err
			}
			return fmt.Errorf("%w; activity %s continues", process.ErrStopped, task)
		}
	}
}

func (p *program) printAttempt(c *cobra.Command, number int64) error {
	if asJSON(c) {
		return nil
	}
	return p.printf("attempt %d", number)
}

func (p *program) printLogLines(c *cobra.Command, a *protocol.ActivityLogs) error {
	for _, l := range a.Lines {
		var err error
		switch {
		case asJSON(c):
			var raw []byte
			if raw, err = json.Marshal(struct {
				AttemptID string `json:"activity_attempt_id"`
				protocol.LogLine
			}{a.AttemptID, l}); err == nil {
				err = p.printf("%s", raw)
			}
		case l.LeftOut > 0:
			err = p.printf("… %d lines omitted", l.LeftOut)
		default:
			err = p.printf("%s %-6s %-5s %s", l.At.Local().Format("15:04:05.000"), l.Source, l.Level, l.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
