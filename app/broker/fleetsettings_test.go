package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (a *app) set(revision int64, s protocol.FleetSettings) (protocol.FleetSettingsState, error) {
	return a.Fleet().SetFleet(a.t.Context(), protocol.FleetSettingsRequest{
		Identity: "op", FleetSettings: s, Revision: &revision,
	})
}

func (a *app) settings() protocol.FleetSettingsState {
	a.t.Helper()
	return must[protocol.FleetSettingsState](a.t)(a.FleetSettings(a.t.Context(), ""))
}

// applies registers a worker's process again, with the revision of settings that it applies.
func (a *app) applies(worker, incarnation string, revision *int64) {
	a.t.Helper()
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), protocol.RegisterRequest{
		WorkerID: worker, Incarnation: incarnation, TaskQueue: "default", ActivityTypes: []string{"greet"},
		Settings: revision,
	}))
}

// Settings that one app stores reach the workers of another app, and both apps show the revision that the workers
// report.
func TestSettingsReachWorkersOfOtherApps(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		sender, at := twoApps(t, database)
		notified := make(chan string, 100)
		at.Fleet().SetNotices(fakeNotices{settings: func(ns string) { notified <- ns }})
		at.applies("w", "w1", new(int64(0)))
		at.applies("unaware", "u1", nil)
		if s := sender.settings(); s.Revision != 0 || s.Workers != 1 || s.Applied != 1 || s.Unaware != 1 ||
			len(s.Pending) != 0 {
			t.Errorf("before anything was set: %+v", s)
		}

		s := must[protocol.FleetSettingsState](t)(sender.set(0, protocol.FleetSettings{LogLevel: "debug", Concurrency: 3}))
		if s.Revision != 1 || s.LogLevel != "debug" || s.Concurrency != 3 || s.By != "op" || s.UpdatedAt.IsZero() ||
			s.Applied != 0 || s.Workers != 1 || len(s.Pending) != 1 || s.Pending[0] != "w" {
			t.Errorf("set: %+v", s)
		}
		select {
		case ns := <-notified:
			if ns != "default" {
				t.Errorf("the workers of %q are notified", ns)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the workers of the other app are not notified")
		}
		beat := must[protocol.WorkerHeartbeatResponse](t)(at.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
			WorkerID: "w", Incarnation: "w1",
		}))
		if beat.Settings != 1 {
			t.Errorf("the response to a heartbeat has revision %d", beat.Settings)
		}

		ended := make(chan protocol.PollStatus, 1)
		go func() { ended <- at.turned("w", "w1", 60) }()
		at.eventually("a poll is held", func() bool {
			waiting := 0
			for _, q := range at.Dispatch().Queues() {
				waiting += q.Waiting
			}
			return waiting > 0
		})
		at.applies("w", "w1", new(int64(1)))
		select {
		case got := <-ended:
			if got != protocol.PollEmpty {
				t.Errorf("the poll from before the change ends with %s", got)
			}
		case <-time.After(20 * time.Second): // without the notification it would end after a minute
			t.Fatal("the poll from before the change stays open")
		}
		for name, a := range map[string]*app{"the app that sent it": sender, "the worker's app": at} {
			if s := a.settings(); s.Applied != 1 || s.Workers != 1 || len(s.Pending) != 0 {
				t.Errorf("%s, when the worker applies it: %+v", name, s)
			}
			w := must[protocol.WorkerView](t)(a.Worker(t.Context(), "default", "w"))
			if w.Settings == nil || *w.Settings != 1 {
				t.Errorf("%s the worker has revision %v", name, w.Settings)
			}
		}

		// a request based on a stale revision changes nothing, and equal settings are no change
		_, err := at.set(0, protocol.FleetSettings{LogLevel: "error"})
		if protocol.ReasonOf(err) != protocol.ReasonStaleRevision {
			t.Errorf("with a stale revision: %v", err)
		}
		second := must[protocol.FleetSettingsState](t)(at.set(1, protocol.FleetSettings{LogLevel: "debug", Concurrency: 3}))
		if second.Revision != 1 {
			t.Errorf("equal settings: %+v", second)
		}
		for _, bad := range []protocol.FleetSettings{
			{LogLevel: "loud"},
			{Concurrency: -1},
			{Concurrency: 10_001},
			{IsolationMin: "vault"},
		} {
			if _, err := at.set(1, bad); protocol.ReasonOf(err) != protocol.ReasonValidation {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if s := sender.settings(); s.Revision != 1 || s.LogLevel != "debug" {
			t.Errorf("after the refused requests: %+v", s)
		}
		// another namespace has separate settings
		other := must[protocol.FleetSettingsState](t)(sender.FleetSettings(t.Context(), "other"))
		if other.Revision != 0 || other.LogLevel != "" || other.Workers != 0 {
			t.Errorf("another namespace: %+v", other)
		}
		free := must[protocol.FleetSettingsState](t)(at.set(1, protocol.FleetSettings{}))
		if free.Revision != 2 || free.LogLevel != "" {
			t.Errorf("after removing the settings: %+v", free)
		}
		audits, err := sender.Audits(t.Context(), "default", false, 10)
		if err != nil || len(audits) != 2 || audits[0].Action != "fleet.settings" ||
			audits[1].Detail != "revision 1: log_level debug worker_concurrency 3" {
			t.Errorf("noted: %+v, %v", audits, err)
		}
	})
}
