package engine

import (
	"math"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Quotas limit how much one namespace uses, so that one tenant cannot crowd out the others. They apply to new work
// only. Outcomes, continue-as-new and cancellations are never refused.

// QuotaLimits holds the limits of a namespace.
type QuotaLimits struct{ OpenRuns, StartsPerSecond, StoredBytes, Schedules int64 }

// NoQuotas are limits that are never reached.
var NoQuotas = QuotaLimits{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}

// DefaultQuotas apply if neither the namespace nor a setting of the app sets a limit.
var DefaultQuotas = QuotaLimits{OpenRuns: 1_000_000, StartsPerSecond: 20_000, StoredBytes: 1 << 40, Schedules: 100_000}

// With returns the limits, overridden by the limits that a namespace sets.
func (l QuotaLimits) With(own protocol.QuotaValues) QuotaLimits {
	set := func(limit, value *int64) {
		if value != nil {
			*limit = *value
		}
	}
	set(&l.OpenRuns, own.OpenRuns)
	set(&l.StartsPerSecond, own.StartsPerSecond)
	set(&l.StoredBytes, own.StoredBytes)
	set(&l.Schedules, own.Schedules)
	return l
}

// Usage is the usage of a namespace, or the difference of two usages. Starts is a running total.
type Usage struct {
	OpenRuns    int64 `json:"open_runs,omitempty"`
	HeldRuns    int64 `json:"held_runs,omitempty"`    // children that wait for a quota; OpenRuns includes them
	StoredBytes int64 `json:"stored_bytes,omitempty"` // size of the histories of all open and closed runs, in bytes
	Schedules   int64 `json:"schedules,omitempty"`
	// number of runs started since counting began; held children do not count
	Starts int64 `json:"starts,omitempty"`
}

// Plus returns the sum of two usages.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		u.OpenRuns + o.OpenRuns, u.HeldRuns + o.HeldRuns, u.StoredBytes + o.StoredBytes, u.Schedules + o.Schedules,
		u.Starts + o.Starts,
	}
}

// Minus returns the difference of two usages.
func (u Usage) Minus(o Usage) Usage {
	return u.Plus(Usage{-o.OpenRuns, -o.HeldRuns, -o.StoredBytes, -o.Schedules, -o.Starts})
}

// RunUsage returns what a run contributes to the usage of its namespace. It does not include Starts, which are counted
// when they happen.
func RunUsage(h *Head) (u Usage) {
	if h.ID == "" {
		return u
	}
	if h.Status.Open() {
		u.OpenRuns = 1
		if h.Held != "" {
			u.HeldRuns = 1
		}
	}
	u.StoredBytes = h.Bytes
	return u
}

// ScheduleUsage returns what a schedule contributes to the usage of its namespace: nothing if it has used up its runs.
func ScheduleUsage(s *Schedule) (u Usage) {
	if s != nil && s.Status != ScheduleDeleted {
		u.Schedules = 1
	}
	return u
}

// RunChanged returns the change in usage by one update of a run. A run that continues another one, or that retries a
// child, does not count as a start.
func RunChanged(before Usage, after *Head, inserted bool) Usage {
	u := RunUsage(after).Minus(before)
	if after.Status.Open() && after.Held == "" && (inserted && after.Number == 1 || before.HeldRuns == 1) {
		u.Starts = 1
	}
	return u
}

// QuotaStanding is the usage of a namespace at one moment, with its limits.
type QuotaStanding struct {
	Limits QuotaLimits
	Usage  Usage
	Rate   int64 // number of starts in the last second
	Left   int64 // number of starts that the rate limit allows now
}

// Of returns the usage and the limit of one quota.
func (s QuotaStanding) Of(q protocol.Quota) (used, limit int64) {
	switch q {
	case protocol.QuotaOpenRuns:
		used, limit = s.Usage.OpenRuns, s.Limits.OpenRuns
	case protocol.QuotaStarts:
		used, limit = s.Rate, s.Limits.StartsPerSecond
	case protocol.QuotaStoredBytes:
		used, limit = s.Usage.StoredBytes, s.Limits.StoredBytes
	case protocol.QuotaSchedules:
		used, limit = s.Usage.Schedules, s.Limits.Schedules
	}
	return max(0, used), limit // a partial count may be negative
}

// QuotaExceeded describes the quota that new work would exceed.
type QuotaExceeded struct {
	Quota       protocol.Quota
	Limit, Used int64
}

// NewRun returns the quota that one more run of a client or schedule would exceed; nil: none. The same step has
// started others other runs before, and ends ended open runs.
func (s QuotaStanding) NewRun(others, ended int64) *QuotaExceeded {
	return s.run(s.Usage.OpenRuns-ended, others)
}

// NewChild is like NewRun, for a child workflow. A held child is already counted in OpenRuns.
func (s QuotaStanding) NewChild(others int64) *QuotaExceeded {
	return s.run(s.Usage.OpenRuns-s.Usage.HeldRuns, others)
}

func (s QuotaStanding) run(open, others int64) *QuotaExceeded {
	switch {
	case open+others >= s.Limits.OpenRuns:
		return &QuotaExceeded{protocol.QuotaOpenRuns, s.Limits.OpenRuns, open + others}
	case others >= s.Left:
		return &QuotaExceeded{protocol.QuotaStarts, s.Limits.StartsPerSecond, s.Rate + others}
	}
	return s.NewBytes()
}

// NewBytes returns the quota that more stored data of a client would exceed; nil: none.
func (s QuotaStanding) NewBytes() *QuotaExceeded {
	if s.Usage.StoredBytes < s.Limits.StoredBytes {
		return nil
	}
	return &QuotaExceeded{protocol.QuotaStoredBytes, s.Limits.StoredBytes, s.Usage.StoredBytes}
}

// NewSchedule returns the quota that one more schedule would exceed; nil: none.
func (s QuotaStanding) NewSchedule() *QuotaExceeded {
	if s.Usage.Schedules < s.Limits.Schedules {
		return nil
	}
	return &QuotaExceeded{protocol.QuotaSchedules, s.Limits.Schedules, s.Usage.Schedules}
}

// ReleaseHeld makes the first task of a held child ready.
type ReleaseHeld struct{}

func (ReleaseHeld) decide(st *step) error {
	if !st.Status.Open() || st.Held == "" {
		return errNotDue
	}
	st.clearHeld()
	return nil
}

// clearHeld marks a held child as no longer waiting for a quota.
func (st *step) clearHeld() {
	if st.Held == "" {
		return
	}
	st.Held = ""
	if t := st.Task; t != nil && t.State == Delayed {
		t.State, t.ReadyAt = Ready, st.now
	}
}

// ChildRoom returns how many held children may start now.
func (s QuotaStanding) ChildRoom() int64 {
	if s.NewBytes() != nil {
		return 0
	}
	return max(0, min(s.Limits.OpenRuns-s.Usage.OpenRuns+s.Usage.HeldRuns, s.Left))
}
