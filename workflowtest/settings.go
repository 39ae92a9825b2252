package workflowtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/suggest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// effective are the names of the settings that have an effect in a test. A test has no listener, no executors and its
// own database.
var effective = []string{
	"activity-log-age", "attempt-lease", "audit-log-age", "build-id", "capabilities", "drain-timeout",
	"max-blamed-losses", "max-set-ups", "queues", "quota-open-runs", "quota-schedules", "quota-starts-per-second",
	"quota-stored-bytes", "resources", "session-buffer", "session-cleanup", "session-idle", "session-lease",
	"snapshot-dir", "snapshot-max-age", "snapshot-timeout", "sticky-cache-size", "worker-concurrency",
	"worker-max-sessions",
}

// loadSettings returns the configuration with these settings, checked as when a process starts.
func loadSettings(settings map[string]string) (*config.Config, error) {
	var environ []string
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		switch {
		case !slices.Contains(effective, name):
			wrong = append(wrong, fmt.Errorf(
				"setting %s is unknown or has no effect in a test%s; settings with an effect: %s", name,
				strings.TrimSuffix(suggest.Ending(suggest.Name(name, effective)), "?"), strings.Join(effective, ", "),
			))
		case settings[name] == "":
			wrong = append(wrong, fmt.Errorf("setting %s is empty; omit it for the default", name))
		default:
			environ = append(
				environ, "SOJOURN_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+settings[name],
			)
		}
	}
	c, _, _, err := config.Load(nil, environ, "") // the warnings concern listeners and tokens
	wrong = append(wrong, err)
	return c, errors.Join(wrong...)
}

// appOptions returns the options of the app.
func (e *Env) appOptions() server.Options {
	c := e.settings
	return server.Options{
		Release: "test", NoAuth: true, Cleanup: c.SessionCleanup, LogAge: c.ActivityLogAge, AuditAge: c.AuditLogAge,
		MaxBlamed: c.MaxBlamed,
		Quotas: &engine.QuotaLimits{
			OpenRuns: int64(c.QuotaOpenRuns), StartsPerSecond: int64(c.QuotaStarts), StoredBytes: int64(c.QuotaBytes),
			Schedules: int64(c.QuotaSchedules),
		},
		Settings: func() protocol.WorkerSettings { return protocol.WorkerSettings{BeatSeconds: e.beatSeconds()} },
	}
}

// beatSeconds returns the interval of heartbeats in seconds. It is as long as possible, since each heartbeat costs CPU
// time: after 33 s without a heartbeat the app lets other workers acquire the soft sessions of a worker. Heartbeats
// renew attempts, so three fit into a lease.
func (e *Env) beatSeconds() int64 {
	return max(1, min(30, int64(e.attemptLease()/(3*time.Second))))
}

// attemptLease returns the lease of an attempt: 2 min, so that heartbeats are rare, unless a setting demands another.
func (e *Env) attemptLease() time.Duration {
	if _, set := e.options.Settings["attempt-lease"]; set {
		return e.settings.AttemptLease
	}
	return 2 * time.Minute
}

// workerOptions returns the options of a worker with the settings of the test.
func (e *Env) workerOptions() (worker.Options, error) {
	c := e.settings
	sessions, err := strconv.Atoi(c.WorkerMaxSessions)
	if err != nil {
		sessions = worker.AutoSessions
	}
	resources, err := protocol.ParseResources(strings.Join(c.Resources, ","))
	if err != nil {
		return worker.Options{}, fmt.Errorf("resources: %w", err)
	}
	return worker.Options{
		Registry: e.registry, Release: "test", Queues: c.Queues, BuildID: c.BuildID, Capabilities: c.Capabilities,
		Resources: resources.Texts(), Concurrency: c.WorkerConcurrency, StickyCache: c.StickyCacheSize,
		AttemptLease: e.attemptLease(), DrainTimeout: c.DrainTimeout, NoMachine: true,
		Sessions: worker.SessionOptions{
			Max: sessions, MaxSetUps: c.MaxSetUps, Lease: c.SessionLease, Buffer: c.SessionBuffer, Idle: c.SessionIdle,
			SnapshotDir: c.SnapshotDir, SnapshotMaxAge: c.SnapshotMaxAge, SnapshotTimeout: c.SnapshotTimeout,
		},
		Executors: worker.ExecutorOptions{Isolation: worker.IsolationNone},
	}, nil
}
