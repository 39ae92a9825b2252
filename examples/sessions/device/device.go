// Package device shares one device among many workflows: a session with options, on workers that have a printer.
package device

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example; Printer is the capability that its worker must have.
const (
	Workflow = "device"
	Printer  = "printer"
)

// Job is a number of pages to print, and the device.
type Job struct {
	Device string `json:"device"`
	Pages  int    `json:"pages"`
}

// Printed has the numbers of the printed pages, as the device counts them.
type Printed struct {
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
	Worker string `json:"worker"`
}

// Register registers the workflow and its activity.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Print)
	r.Activity("device.print", Pages)
}

// Print prints on a device. All runs that name it meet in one session, on one worker, one after the other.
func Print(ctx workflow.Context, j Job) (Printed, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Minute,
		WorkerSession: &workflow.WorkerSession{
			ID:            "device-" + j.Device,
			Requirements:  []string{Printer},
			Lease:         30 * time.Second,
			TTL:           workflow.NoTTL, // it ends when it is closed; with a TTL it would end after that time
			MaxActivities: 1,
		},
	})
	return workflow.Execute[Printed](ctx, Pages, j.Pages)
}

// printer is a device that was opened once and stays open.
type printer struct{ pages atomic.Int64 }

// Pages prints some pages.
func Pages(ctx context.Context, n int) (Printed, error) {
	p, err := activity.GetOrCreate(ctx, "printer", func(context.Context) (*printer, error) { return &printer{}, nil })
	if err != nil {
		return Printed{}, err
	}
	last := p.pages.Add(int64(n))
	return Printed{First: last - int64(n) + 1, Last: last, Worker: activity.Info(ctx).WorkerID}, nil
}
