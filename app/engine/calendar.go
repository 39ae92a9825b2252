package engine

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the time zones are built in, so they are the same on every machine

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file computes the times of a schedule. They depend only on its spec, so that every app computes the same times,
// also after a restart: time zones are built in instead of read from the machine, and jitter is a hash instead of a
// random number.

// Calendar holds the expressions of a schedule, which fires at the times of each of them.
type Calendar struct {
	crons     []expression
	zone      *time.Location
	intervals []interval
}

type interval struct{ every, offset time.Duration }

// maxSpecs is the maximum number of expressions, and of intervals, of one schedule.
const maxSpecs = 100

// ParseCalendar parses a spec. A refusal names the field.
func ParseCalendar(s protocol.ScheduleSpec) (*Calendar, error) {
	c := &Calendar{zone: time.UTC}
	if s.TimeZone != "" {
		var err error
		if c.zone, err = time.LoadLocation(s.TimeZone); err != nil || strings.EqualFold(s.TimeZone, "local") {
			return nil, protocol.Invalid("spec.timezone", "unknown time zone %q", s.TimeZone)
		}
	}
	switch {
	case len(s.Cron)+len(s.Intervals) == 0:
		return nil, protocol.Invalid("spec", "needs cron_expressions or intervals")
	case len(s.Cron) > maxSpecs || len(s.Intervals) > maxSpecs:
		return nil, protocol.Invalid("spec", "more than %d expressions", maxSpecs)
	}
	for i, e := range s.Cron {
		field := fmt.Sprintf("spec.cron_expressions.%d", i)
		// The library accepts TZ and @every. With them, a spec could state its zone or its interval twice.
		if strings.Contains(e, "TZ=") || strings.HasPrefix(e, "@every") {
			return nil, protocol.Invalid(field, "must not contain TZ= or @every; use timezone and intervals")
		}
		p, err := parseExpression(e)
		if err != nil {
			return nil, protocol.Invalid(field, "%v", err)
		}
		c.crons = append(c.crons, p)
	}
	for i, v := range s.Intervals {
		field := fmt.Sprintf("spec.intervals.%d", i)
		every, err := ParseDuration(v.Every)
		if err != nil || every < time.Second {
			return nil, protocol.Invalid(field+".every", "must be a duration of a second or more, as PT30M")
		}
		in := interval{every: every}
		if v.Offset != "" {
			if in.offset, err = ParseDuration(v.Offset); err != nil {
				return nil, protocol.Invalid(field+".offset", "must be a duration, as PT30M")
			}
		}
		c.intervals = append(c.intervals, in)
	}
	return c, nil
}

// leapYear begins a year that has 29 February.
var leapYear = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// NewCalendar parses the spec of a schedule that is being created or previewed. It refuses expressions whose day never
// occurs, like 30 February, and steps beyond their range, like */90 minutes. Stored schedules may contain such
// expressions; ParseCalendar accepts them.
func NewCalendar(s protocol.ScheduleSpec) (*Calendar, error) {
	c, err := ParseCalendar(s)
	if err != nil {
		return nil, err
	}
	for i, e := range c.crons {
		field := fmt.Sprintf("spec.cron_expressions.%d", i)
		if e.times.Next(leapYear).IsZero() {
			return nil, protocol.Invalid(field, "names a date that does not exist")
		}
		if e.step != "" {
			return nil, protocol.Invalid(field, "has the step %s, which is beyond its range", e.step)
		}
	}
	return c, nil
}

// Next returns the first time after t, or zero if there is none.
func (c *Calendar) Next(t time.Time) (next time.Time) {
	consider := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, e := range c.crons {
		consider(e.next(t, c.zone))
	}
	// Intervals count from 1970, not from the creation of the schedule, so that an update of the schedule does not
	// shift them.
	for _, i := range c.intervals {
		since := t.Sub(time.Unix(0, 0)) - i.offset
		n := since / i.every
		if since < 0 && since%i.every != 0 {
			n--
		}
		consider(time.Unix(0, 0).UTC().Add(i.offset + (n+1)*i.every)) //nolint:durationcheck // n counts
	}
	return next
}

// MovedFrom returns the local time that a clock change skipped and for which a firing takes place instead, such as
// "02:30" for a firing at 03:00; empty for all other firings.
func (c *Calendar) MovedFrom(at time.Time) string {
	for _, e := range c.crons {
		if from := e.movedFrom(at, c.zone); from != "" {
			return from
		}
	}
	return ""
}

// Between returns at most limit times between two times, both included; more is true if there are further times.
func (c *Calendar) Between(from, to time.Time, limit int) (list []time.Time, more bool) {
	for at := c.Next(from.Add(-time.Nanosecond)); !at.IsZero() && !at.After(to); at = c.Next(at) {
		if len(list) == limit {
			return list, true
		}
		list = append(list, at)
	}
	return list, false
}

var isoDuration = regexp.MustCompile(`^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$`)

const maxInterval = protocol.MaxSeconds * time.Second

// ParseDuration parses an ISO 8601 duration of weeks, days, hours, minutes and seconds.
func ParseDuration(text string) (time.Duration, error) {
	m := isoDuration.FindStringSubmatch(text)
	if m == nil || strings.HasSuffix(text, "T") || text == "P" {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	var sum time.Duration
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(m[i+1], 10, 64)
		if err != nil || n > int64(maxInterval/unit) {
			return 0, fmt.Errorf("%q is too long", text)
		}
		sum += time.Duration(n) * unit
	}
	if sum > maxInterval {
		return 0, fmt.Errorf("%q is too long", text)
	}
	return sum, nil
}

// jitter returns the delay that is added to a time of a schedule: 0 to the given number of seconds, and always the same
// for the same time.
func jitter(k ScheduleKey, at time.Time, seconds int64) time.Duration {
	if seconds <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%d", k.Namespace, k.ID, at.UnixMicro())
	mixed := h.Sum64() * 0x9e3779b97f4a7c15 // consecutive times differ in few bits, so mix the bits
	return time.Duration((mixed>>20)%uint64(seconds*1000+1)) * time.Millisecond
}
