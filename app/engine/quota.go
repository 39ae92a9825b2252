package engine

import (
	"math"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Quotas limit what one namespace has, so that one tenant leaves room for the others. They refuse or hold back new work
// alone: what ends, continues or cancels work is decided without them.

// QuotaLimits are the quotas of a namespace.
type QuotaLimits struct{ OpenRuns, StartsPerSecond, StoredBytes, Schedules int64 }

// NoQuotas limits nothing.
var NoQuotas = QuotaLimits{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}

// DefaultQuotas are the quotas of a namespace where neither it nor a setting says otherwise.
var DefaultQuotas = QuotaLimits{OpenRuns: 1_000_000, StartsPerSecond: 20_000, StoredBytes: 1 << 40, Schedules: 100_000}

// With returns the limits with the values of a namespace in place of those that it sets.
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

// Usage is what a namespace has, and of starts how many it ever had. It is also a difference of two of these.
type Usage struct {
	OpenRuns    int64 `json:"open_runs,omitempty"`
	HeldRuns    int64 `json:"held_runs,omitempty"`    // of the open runs: children that a quota holds back
	StoredBytes int64 `json:"stored_bytes,omitempty"` // the histories of all runs, open and closed
	Schedules   int64 `json:"schedules,omitempty"`
	Starts      int64 `json:"starts,omitempty"` // new runs since the first count, without those that are held
}

// Plus adds up two usages.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		u.OpenRuns + o.OpenRuns, u.HeldRuns + o.HeldRuns, u.StoredBytes + o.StoredBytes, u.Schedules + o.Schedules,
		u.Starts + o.Starts,
	}
}

// Minus is the difference of two usages.
func (u Usage) Minus(o Usage) Usage {
	return u.Plus(Usage{-o.OpenRuns, -o.HeldRuns, -o.StoredBytes, -o.Schedules, -o.Starts})
}

// RunUsage is what a run adds to the usage of its namespace. Starts are not in it: they are counted as they happen.
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

// ScheduleUsage is what a schedule adds to the usage of its namespace, until it is removed or its runs are used up.
func ScheduleUsage(s *Schedule) (u Usage) {
	if s != nil && s.Status != ScheduleDeleted {
		u.Schedules = 1
	}
	return u
}

// RunChanged is what a step of a run changes in the usage of its namespace. A run that continues another is no start,
// nor is another run of a child that is retried.
func RunChanged(before Usage, after *Head, inserted bool) Usage {
	u := RunUsage(after).Minus(before)
	if after.Status.Open() && after.Held == "" && (inserted && after.Number == 1 || before.HeldRuns == 1) {
		u.Starts = 1
	}
	return u
}

// QuotaStanding is a namespace's usage beside its quotas, at one moment.
type QuotaStanding struct {
	Limits QuotaLimits
	Usage  Usage
	Rate   int64 // starts in the last second
	Left   int64 // starts that may follow now
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
	return max(0, used), limit // an incomplete count may be negative
}

// QuotaExceeded names a quota that leaves no room for something new.
type QuotaExceeded struct {
	Quota       protocol.Quota
	Limit, Used int64
}

// NewRun says which quota leaves no room for a run that a client or a schedule starts, behind others of the same step;
// nil: none.
func (s QuotaStanding) NewRun(others int64) *QuotaExceeded {
	return s.run(s.Usage.OpenRuns, others)
}

// NewChild is NewRun for a child workflow. Children that are held have a place among the open runs already.
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

// NewBytes says whether what a client adds to a history has room.
func (s QuotaStanding) NewBytes() *QuotaExceeded {
	if s.Usage.StoredBytes < s.Limits.StoredBytes {
		return nil
	}
	return &QuotaExceeded{protocol.QuotaStoredBytes, s.Limits.StoredBytes, s.Usage.StoredBytes}
}

// NewSchedule says whether another schedule has room.
func (s QuotaStanding) NewSchedule() *QuotaExceeded {
	if s.Usage.Schedules < s.Limits.Schedules {
		return nil
	}
	return &QuotaExceeded{protocol.QuotaSchedules, s.Limits.Schedules, s.Usage.Schedules}
}

// ReleaseHeld makes the first task of a child ready that a quota held back.
type ReleaseHeld struct{}

func (ReleaseHeld) decide(st *step) error {
	if !st.Status.Open() || st.Held == "" {
		return errNotDue
	}
	st.endHold()
	return nil
}

// endHold ends the hold of a quota.
func (st *step) endHold() {
	if st.Held == "" {
		return
	}
	st.Held = ""
	if t := st.Task; t != nil && t.State == Delayed {
		t.State, t.ReadyAt = Ready, st.now
	}
}

// ChildRoom is how many children may begin now.
func (s QuotaStanding) ChildRoom() int64 {
	if s.NewBytes() != nil {
		return 0
	}
	return max(0, min(s.Limits.OpenRuns-s.Usage.OpenRuns+s.Usage.HeldRuns, s.Left))
}
