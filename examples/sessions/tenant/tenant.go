// Package tenant has a session with a definition: each tenant's journal is opened once by the owner of the session and
// closed when the owner gives the session up, without code for either in workflow and activities.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example.
const Workflow = "tenant"

// Entries are the lines that one run adds to a tenant's journal.
type Entries struct {
	Tenant string   `json:"tenant"`
	Lines  []string `json:"lines"`
}

// Written is the state of a journal after a line was added.
type Written struct {
	Lines  int    `json:"lines"`
	Opened int64  `json:"opened_in_epoch"` // epoch in which the owner opened the journal
	Worker string `json:"worker"`
}

// Register offers the workflow, its activity and the session definition.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Keep)
	r.Session("tenant", activity.SessionDefinition{
		SetUp:    Open,  // func(context.Context, args…) (T, error)
		TearDown: Close, // func(context.Context, T) error
	})
	r.Activity("tenant.put", Put)
}

// Keep adds lines to the journal of a tenant. All runs of the tenant use the same session.
func Keep(ctx workflow.Context, e Entries) (last Written, err error) {
	ctx = workflow.WithActivity(
		ctx, workflow.ActivityOptions{StartToClose: time.Minute, Retry: &workflow.RetryPolicy{MaxAttempts: 3}},
	)
	def := workflow.SessionDefinition{Name: "tenant", Arguments: []any{e.Tenant}}
	inside := workflow.InSession(ctx, "tenant-"+e.Tenant, def)
	for _, line := range e.Lines {
		if last, err = workflow.Execute[Written](inside, Put, line); err != nil {
			return last, err
		}
	}
	return last, nil
}

// Journal is an open file of a tenant. Only the owner of the tenant's session has it open.
type Journal struct {
	file  *os.File
	lines int
	epoch int64
}

var name = regexp.MustCompile(`^[a-z0-9]+$`)

// Open opens the journal of a tenant and counts its lines.
func Open(ctx context.Context, tenant string) (*Journal, error) {
	if !name.MatchString(tenant) {
		return nil, activity.NewError("BadTenant", "a tenant consists of a-z and 0-9", activity.NonRetryable)
	}
	path := filepath.Join(os.TempDir(), "sojourn-tenant-"+tenant+".txt")
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Journal{file: file, lines: strings.Count(string(raw), "\n"), epoch: activity.SessionEpoch(ctx)}, nil
}

// Close closes the journal.
func Close(_ context.Context, j *Journal) error { return j.file.Close() }

// Put appends a line to the journal that Open has opened.
func Put(ctx context.Context, line string) (Written, error) {
	j, err := activity.State[*Journal](ctx)
	if err != nil {
		return Written{}, err
	}
	if _, err := fmt.Fprintln(j.file, line); err != nil {
		return Written{}, err
	}
	j.lines++
	return Written{Lines: j.lines, Opened: j.epoch, Worker: activity.Info(ctx).WorkerID}, nil
}
