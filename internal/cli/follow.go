package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/process"
)

const followHelp = "print new events until the run closes; continues with the next run after a continue-as-new"

// followed is a run whose events are printed as they occur.
type followed struct {
	id, run string
	after   int64 // sequence of the last event that was shown
	chain   bool  // also follow the runs that it continues as
	stacks  bool  // also show the stacks of failures
	full    bool  // show complete values
}

// follow prints the events of a run as they occur, until the run has closed.
func (p *program) follow(c *cobra.Command, f followed) error {
	for {
		next, err := p.followRun(c, f)
		switch {
		case errors.Is(err, process.ErrStopped):
			return fmt.Errorf("%w; run %s of %s continues", err, f.run, f.id)
		case err != nil || next == "" || !f.chain:
			return err
		}
		f.run, f.after = next, 0
		if asJSON(c) {
			continue
		}
		if err := p.printf("continued as run %s", next); err != nil {
			return err
		}
	}
}

// followRun follows one run; next is the run that it continued as.
func (p *program) followRun(c *cobra.Command, f followed) (next string, err error) {
	q := shownValues(f.full || asJSON(c))
	q.Set("wait_new_event", "true")
	if f.after > 0 {
		q.Set("after", strconv.FormatInt(f.after, 10))
	}
	for {
		var page struct {
			Events []json.RawMessage `json:"events"`
			Next   string            `json:"next_page_token"`
		}
		if err := p.call(c, http.MethodGet, runPath(f.id, f.run)+"/history?"+q.Encode(), nil, &page); err != nil {
			return "", err
		}
		for _, raw := range page.Events {
			var e struct {
				Sequence int64 `json:"sequence"`
				Payload  struct {
					Next string `json:"continued_to_run_id"`
				} `json:"payload"`
			}
			_ = json.Unmarshal(raw, &e) // an event with another form is printed, and names no next run
			if e.Payload.Next != "" {
				next = e.Payload.Next
			}
			if e.Sequence > f.after {
				if err := p.showEvent(c, raw, f.stacks); err != nil {
					return "", err
				}
			}
		}
		if page.Next == "" {
			return next, nil
		}
		q.Del("after")
		q.Set("next_page_token", page.Next)
	}
}
