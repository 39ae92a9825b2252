package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// expression is one cron expression. Its hour field decides how it reacts to clock changes. With a wildcard, it follows
// elapsed time: it fires for every hour that passes. Without one, it names local times: a local time that the clocks
// skip fires at the first moment after the gap, and a local time that occurs twice fires the first time.
type expression struct {
	times    *cron.SpecSchedule // local times, computed as if they were UTC
	wildcard bool
	step     string // the first step beyond its range, like "*/90"; empty: none
}

// cronFields are the fields of an expression, in order.
var cronFields = []struct {
	name     string
	min, max int
}{{"minute", 0, 59}, {"hour", 0, 23}, {"day of month", 1, 31}, {"month", 1, 12}, {"day of week", 0, 7}}

const (
	hourField    = 1
	weekdayField = 4
)

// parseExpression parses five fields or a descriptor like @daily, in any letter case. As in cron, weekday 7 is Sunday.
func parseExpression(text string) (expression, error) {
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) {
		return parseWithLibrary(strings.ToLower(text), expression{})
	}
	e := expression{wildcard: hasWildcard(fields[hourField])}
	for i, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			if f := cronFields[i]; hasNumberOutside(part, f.min, f.max) {
				return e, fmt.Errorf("%s must be %d–%d, got %q", f.name, f.min, f.max, part)
			}
			if e.step == "" && stepExceedsRange(part, cronFields[i].min, cronFields[i].max) {
				e.step = part
			}
		}
	}
	var err error
	if fields[weekdayField], err = sundays(fields[weekdayField]); err != nil {
		return e, err
	}
	return parseWithLibrary(strings.Join(fields, " "), e)
}

// parseWithLibrary parses an expression with the library. It also passes texts that do not have five fields, because
// the library explains what is wrong with them.
func parseWithLibrary(text string, e expression) (expression, error) {
	s, err := cron.ParseStandard(text)
	if err != nil {
		return e, err
	}
	times, ok := s.(*cron.SpecSchedule)
	if !ok { // "@every", which the caller refuses
		return e, fmt.Errorf("%q is not a cron expression", text)
	}
	const hours = 1<<24 - 1
	e.times, e.wildcard = times, e.wildcard || times.Hour&hours == hours
	return e, nil
}

// hasWildcard reports whether a part of a field begins with * or ?.
func hasWildcard(field string) bool {
	for part := range strings.SplitSeq(field, ",") {
		if strings.HasPrefix(part, "*") || strings.HasPrefix(part, "?") {
			return true
		}
	}
	return false
}

// hasNumberOutside reports whether a part of a field has a number outside the range of the field.
func hasNumberOutside(part string, low, high int) bool {
	of, _, _ := strings.Cut(part, "/")
	from, to, _ := strings.Cut(of, "-")
	for _, text := range []string{from, to} {
		if n, err := strconv.Atoi(text); err == nil && (n < low || n > high) {
			return true
		}
	}
	return false
}

// stepExceedsRange reports whether the step in a part exceeds its range, so that it would never take effect.
func stepExceedsRange(part string, low, high int) bool {
	of, by, has := strings.Cut(part, "/")
	step, err := strconv.Atoi(by)
	if !has || err != nil || step <= 1 {
		return false
	}
	if from, to, is := strings.Cut(of, "-"); is {
		a, e := strconv.Atoi(from)
		b, f := strconv.Atoi(to)
		if e != nil || f != nil { // names of months or weekdays: the library checks them
			return false
		}
		low, high = a, b
	} else if n, err := strconv.Atoi(of); err == nil {
		low = n
	}
	return step > high-low
}

// sundays replaces weekday 7, which the library does not accept, by 0. A range that ends with 7 becomes the list of its
// days.
func sundays(field string) (string, error) {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		days, by, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(days, "-")
		switch {
		case days == "7" && !stepped:
			parts[i] = "0"
		case ranged && to == "7":
			first, err := weekday(from)
			if err != nil {
				return "", err
			}
			step := 1
			if stepped {
				if step, err = strconv.Atoi(by); err != nil || step < 1 {
					return "", fmt.Errorf("step %q of the day of week must be a number above 0", by)
				}
			}
			var list []string
			for day := first; day <= 7; day += step {
				list = append(list, strconv.Itoa(day%7))
			}
			parts[i] = strings.Join(list, ",")
		}
	}
	return strings.Join(parts, ","), nil
}

func weekday(text string) (int, error) {
	for day := range 7 {
		if strings.EqualFold(text, time.Weekday(day).String()[:3]) {
			return day, nil
		}
	}
	if day, err := strconv.Atoi(text); err == nil && day >= 0 && day <= 7 {
		return day, nil
	}
	return 0, fmt.Errorf("%q is not a day of the week", text)
}

// next returns the first time after t in a zone, or zero if there is none within five years.
func (e expression) next(t time.Time, zone *time.Location) time.Time {
	if e.wildcard {
		return e.times.Next(t.In(zone)).UTC()
	}
	for wall := e.times.Next(localTime(t, zone)); !wall.IsZero(); wall = e.times.Next(wall) {
		// In the second pass of a repeated hour, the local times of the first pass have passed.
		if at, _ := resolveLocalTime(wall, zone); at.After(t) {
			return at
		}
	}
	return time.Time{}
}

// movedFrom returns the local time that a clock change skipped and for which the firing at at takes place; empty if
// there is none.
func (e expression) movedFrom(at time.Time, zone *time.Location) string {
	if e.wildcard {
		return ""
	}
	before := localTime(at.Add(-time.Nanosecond), zone)
	wall := e.times.Next(before)
	if wall.IsZero() {
		return ""
	}
	if fires, skipped := resolveLocalTime(wall, zone); !skipped || !fires.Equal(at) {
		return ""
	}
	return wall.Format("15:04")
}

// localTime returns the local time of t in a zone, as a UTC time with the same date and clock time.
func localTime(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// resolveLocalTime returns the time at which a zone's clocks show a local time, the first one if there are two. If the
// clocks skip the local time, it is the first moment after the gap.
func resolveLocalTime(wall time.Time, zone *time.Location) (at time.Time, skipped bool) {
	// No offset changes by more than a day. So the two offsets around the local time are those one day before and one
	// day after it, unless the zone changed twice meanwhile.
	const day = 24 * time.Hour
	first := time.Time{}
	for _, near := range []time.Time{wall.Add(-day), wall, wall.Add(day)} {
		_, offset := near.In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		if localTime(t, zone).Equal(wall) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		return first, false
	}
	// Before the gap the clocks show an earlier local time, after it a later one.
	from, to := wall.Add(-2*day).Unix(), wall.Add(2*day).Unix()
	for to-from > 1 {
		middle := (from + to) / 2
		if localTime(time.Unix(middle, 0), zone).Before(wall) {
			from = middle
		} else {
			to = middle
		}
	}
	return time.Unix(to, 0).UTC(), true
}
