package protocol

// Quota is a limit of a namespace, from this closed list.
type Quota string

// The names of the quotas in requests, refusals and metrics.
const (
	QuotaOpenRuns    Quota = "open_runs"
	QuotaStarts      Quota = "starts_per_second"
	QuotaStoredBytes Quota = "stored_bytes"
	QuotaSchedules   Quota = "schedules"
)

// RetryAfter is the member of a refusal with the number of seconds, an int, after which the request may be repeated.
const RetryAfter = "retry_after_seconds"

// Quotas are all quotas.
var Quotas = []Quota{QuotaOpenRuns, QuotaStarts, QuotaStoredBytes, QuotaSchedules}

// QuotaValues are a namespace's quotas. For an absent member the app's setting applies.
type QuotaValues struct {
	OpenRuns        *int64 `json:"open_runs,omitempty" minimum:"-1"`
	StartsPerSecond *int64 `json:"starts_per_second,omitempty" minimum:"-1"`
	StoredBytes     *int64 `json:"stored_bytes,omitempty" minimum:"-1"`
	Schedules       *int64 `json:"schedules,omitempty" minimum:"-1"`
}

// Set copies the values that a request sets; -1 removes a value, so that the setting applies again.
func (v *QuotaValues) Set(in QuotaValues) {
	for _, q := range Quotas {
		switch n := *in.Field(q); {
		case n == nil:
		case *n < 0:
			*v.Field(q) = nil
		default:
			*v.Field(q) = n
		}
	}
}

// Field returns the field of a quota; nil for a name that is not in Quotas.
func (v *QuotaValues) Field(q Quota) **int64 {
	switch q {
	case QuotaOpenRuns:
		return &v.OpenRuns
	case QuotaStarts:
		return &v.StartsPerSecond
	case QuotaStoredBytes:
		return &v.StoredBytes
	case QuotaSchedules:
		return &v.Schedules
	}
	return nil
}

// QuotaState is one quota of a namespace with its usage.
type QuotaState struct {
	Quota Quota  `json:"quota"`
	Limit int64  `json:"limit"`
	From  string `json:"from"`           // namespace if the namespace has its own value, else setting
	Used  int64  `json:"used"`           // starts_per_second: starts in the last second
	Held  int64  `json:"held,omitempty"` // open_runs: children that wait for a quota
}
