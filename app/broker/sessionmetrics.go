package broker

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Most changes of sessions are part of other transactions, so they are counted from what commits report, each by the
// app that committed it. Summed over the apps, each change is counted once.

// sessionCounters count changes of sessions at this app.
type sessionCounters struct {
	claims, ends, rebuilds, unbuilt, late *prometheus.CounterVec
	evictions, setUps                     *prometheus.CounterVec
	setUpSeconds                          prometheus.Counter
	renewals, cleaned, thrashed, ignored  prometheus.Counter
	places                                prometheus.Counter
}

func newSessionCounters(r prometheus.Registerer) sessionCounters {
	vec := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		r.MustRegister(v)
		return v
	}
	one := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	return sessionCounters{
		ignored: one(
			"sojourn_session_epochs_ignored_total",
			"Epochs that workers reported and that were ignored, because they were more than a day ahead of the database's clock.",
		),
		claims: vec(
			"sojourn_session_claims_total",
			"Sessions claimed, by kind: new for the first claim of a row, reclaim for every other.", "kind",
		),
		ends: vec(
			"sojourn_session_ends_total",
			"Holdings of sessions that ended, by how: released, expired, idle_unpinned, orphaned, failed, closed.", "how",
		),
		rebuilds: vec("sojourn_session_rebuilds_total",
			"Rebuilds after which activities were tried again, by reason: how the state was lost.", "reason"),
		unbuilt: vec("sojourn_session_rebuilds_failed_total",
			"Rebuilds with which their attempt ended, by outcome: failed, cancelled.", "outcome"),
		setUps: vec("sojourn_session_set_ups_total",
			"Set-ups of sessions by their definitions, by outcome: completed, failed.", "outcome"),
		setUpSeconds: one("sojourn_session_set_up_seconds_total", "Duration of the set-ups that completed."),
		late: vec("sojourn_session_late_completions_total",
			"Completions that came too late and were ignored, by why: session_ended, stale_session_epoch.", "why"),
		evictions: vec("sojourn_session_evictions_total",
			"Idle sessions that were given up for others, by why: cap, the holder held as many as it may; pressure, its memory was scarce.", "why"),
		thrashed: one(
			"sojourn_sessions_thrashed_total",
			"Sessions that were claimed again within a minute of giving way at their holder's cap.",
		),
		places: one(
			"sojourn_session_place_waits_total",
			"Sessions whose tasks waited for 30 s because every live worker that may take them held as many sessions as it may.",
		),
		renewals: one("sojourn_session_renewals_total", "Leases of sessions that were renewed."),
		cleaned:  one("sojourn_sessions_cleaned_up_total", "Rows of sessions that were removed."),
	}
}

// Acquisitions soon after an eviction have a separate counter: a high count means that the maximum number of sessions
// is too low.
func (m *Metrics) countSessionMove(e store.SessionMove) {
	switch {
	case m == nil:
	case e.What == "claimed":
		m.sessions.claims.WithLabelValues("new").Inc()
	case e.What == "reclaimed":
		m.sessions.claims.WithLabelValues("reclaim").Inc()
		if strings.HasPrefix(e.Why, engine.ReasonEvictedCap) {
			m.sessions.thrashed.Inc()
		}
	case e.What == "resumed":
		m.sessions.claims.WithLabelValues("resume").Inc()
	case e.What == "set_up", e.What == protocol.SessionPrepared:
		m.sessions.setUps.WithLabelValues("completed").Inc()
		m.sessions.setUpSeconds.Add(max(0, e.Seconds))
	case e.What == "set_up_failed":
		m.sessions.setUps.WithLabelValues("failed").Inc()
	case e.What == "cleaned_up":
		m.sessions.cleaned.Inc()
	case e.Ends():
		m.sessions.ends.WithLabelValues(e.What).Inc()
		switch e.Why {
		case engine.ReasonEvictedCap:
			m.sessions.evictions.WithLabelValues("cap").Inc()
		case engine.ReasonEvictedPressure:
			m.sessions.evictions.WithLabelValues("pressure").Inc()
		}
	}
}

// countPlaceWait counts a session whose task has waited too long for a worker that can hold another session.
func (m *Metrics) countPlaceWait() {
	if m != nil {
		m.sessions.places.Inc()
	}
}

// countRenewals counts renewals. No commit reports renewals, so the heartbeat handler counts them.
func (m *Metrics) countRenewals(n int) {
	if m != nil {
		m.sessions.renewals.Add(float64(n))
	}
}

// countLateOutcome counts outcomes that arrived too late. They were rejected, so no commit reports them.
func (m *Metrics) countLateOutcome(why string) {
	if m != nil {
		m.sessions.late.WithLabelValues(why).Inc()
	}
}

// countRebuild counts a rebuild of a session's state that ran in this attempt, also if the outcome of the attempt
// arrived too late. Rebuilds in other attempts are counted with those attempts. The reason comes from the worker and
// becomes a label, so unknown reasons are counted as "other".
func (m *Metrics) countRebuild(r *protocol.Recovered) {
	if m == nil || r == nil || r.Rebuild == "" {
		return
	}
	reason := "other"
	if protocol.LostReasons[r.Reason] {
		reason = r.Reason
	}
	ran, failed := max(r.Retries, 1), r.Outcome == protocol.RebuildFailed || r.Outcome == protocol.RebuildCancelled
	if failed {
		ran = r.Retries + 1
	}
	if ran = max(0, ran-max(0, r.Waited)); failed && ran > 0 { // only the last rebuild failed; earlier ones succeeded
		m.sessions.unbuilt.WithLabelValues(r.Outcome).Inc()
		ran--
	}
	m.sessions.rebuilds.WithLabelValues(reason).Add(float64(ran))
}

// countIgnoredEpoch counts an epoch that a worker reported and that is too far ahead of the database's clock.
func (m *Metrics) countIgnoredEpoch() {
	if m != nil {
		m.sessions.ignored.Inc()
	}
}
