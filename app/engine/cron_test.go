package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// changes are zones and days with clock changes: by an hour, by half an hour, by two hours, at midnight, by a whole
// day, and with negative summer time.
var changes = []struct{ zone, day string }{
	{"Europe/Berlin", "2026-03-29"},
	{"Europe/Berlin", "2026-10-25"},
	{"America/New_York", "2026-03-08"},
	{"America/New_York", "2026-11-01"},
	{"America/St_Johns", "2026-03-08"},
	{"America/St_Johns", "2006-10-29"},
	{"Australia/Lord_Howe", "2026-04-05"},
	{"Australia/Lord_Howe", "2026-10-04"},
	{"Antarctica/Troll", "2026-03-29"},
	{"Antarctica/Troll", "2026-10-25"},
	{"America/Sao_Paulo", "2018-11-04"},
	{"America/Sao_Paulo", "2018-02-18"},
	{"America/Havana", "2026-03-08"},
	{"America/Havana", "2026-11-01"},
	{"Asia/Beirut", "2026-03-29"},
	{"Africa/Casablanca", "2026-02-15"},
	{"Africa/Casablanca", "2026-03-22"},
	{"Europe/Dublin", "2026-10-25"},
	{"Pacific/Apia", "2011-12-30"},
	{"Pacific/Chatham", "2026-09-27"},
	{"Asia/Pyongyang", "2015-08-15"},
	{"Asia/Pyongyang", "2018-05-05"},
	{"UTC", "2026-03-29"},
}

// firings is a slow second implementation of the rule: it returns when each local minute around a clock change fires.
// It searches all instants for every minute.
func firings(zone *time.Location, from, to time.Time) map[time.Time]time.Time {
	first := map[time.Time]time.Time{} // first instant of each local minute
	walls := map[time.Time]time.Time{}
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		walls[at] = localTime(at, zone)
		if _, has := first[walls[at]]; !has {
			first[walls[at]] = at
		}
	}
	for wall := localTime(from, zone); wall.Before(localTime(to, zone)); wall = wall.Add(time.Minute) {
		_, has := first[wall]
		// the clocks skip the minute: take the first instant with a later local time
		for at := from; !has; at = at.Add(time.Minute) {
			if walls[at].After(wall) {
				first[wall], has = at, true
			}
		}
	}
	return first
}

// In every zone, a fixed local time that a clock change skips fires once, at the first moment after the gap, and a
// local time that occurs twice fires the first time.
func TestFixedLocalTimesAtClockChanges(t *testing.T) {
	for _, c := range changes {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.ParseInLocation(time.DateOnly, c.day, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		from, end := day.Add(-36*time.Hour), day.Add(36*time.Hour)
		fires := firings(zone, from, end.Add(36*time.Hour))
		for hour := range 24 {
			for text, minutes := range map[string]func(int) bool{
				"0":     func(m int) bool { return m == 0 },
				"15,45": func(m int) bool { return m == 15 || m == 45 },
				"*/5":   func(m int) bool { return m%5 == 0 },
			} {
				text := fmt.Sprintf("%s %d * * *", text, hour)
				calendar, err := ParseCalendar(protocol.ScheduleSpec{Cron: []string{text}, TimeZone: c.zone})
				if err != nil {
					t.Fatal(err)
				}
				var got, want []time.Time
				for at := calendar.Next(from); at.Before(end); at = calendar.Next(at) {
					got = append(got, at)
				}
				for wall, at := range fires {
					if wall.Hour() == hour && minutes(wall.Minute()) && at.After(from) && at.Before(end) {
						want = append(want, at)
					}
				}
				slices.SortFunc(want, time.Time.Compare)
				if want = slices.Compact(want); !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Errorf("%s, %s at %s:\n got %v\nwant %v", text, c.zone, c.day, got, want)
				}
			}
		}
	}
}

func TestCronExpressions(t *testing.T) {
	at := func(text string) time.Time {
		v, err := time.Parse("2006-01-02T15:04Z07:00", text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		cron, zone, after string
		want              []string
		moved             string // local time for which the first firing takes place
	}{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", []string{"2026-03-29T01:00Z", "2026-03-30T00:30Z"}, "02:30"},
		{"*/10 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", []string{"2026-03-29T01:00Z", "2026-03-30T00:00Z"}, "02:00"},
		{"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", []string{"2026-03-29T01:00Z", "2026-03-29T01:30Z"}, "02:30"},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", []string{"2026-03-29T01:00Z", "2026-03-30T00:00Z"}, "02:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", []string{"2026-10-25T00:30Z", "2026-10-26T01:30Z"}, ""},
		// With a wildcard hour, the expression fires in every hour that passes.
		{"30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", []string{"2026-03-29T00:30Z", "2026-03-29T01:30Z"}, ""},
		{
			"30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z",
			[]string{"2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-25T02:30Z"},
			"",
		},
		{"30 0-23 * * *", "Europe/Berlin", "2026-10-25T00:00Z", []string{"2026-10-25T00:30Z", "2026-10-25T01:30Z"}, ""},
		{"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", []string{"2018-11-04T03:00Z", "2018-11-05T02:00Z"}, "00:00"},
		{"@daily", "America/Sao_Paulo", "2018-11-03T12:00Z", []string{"2018-11-04T03:00Z"}, "00:00"},
		{"@DAILY", "", "2026-01-01T12:00Z", []string{"2026-01-02T00:00Z"}, ""},
		{"@Hourly", "", "2026-01-01T12:00Z", []string{"2026-01-01T13:00Z"}, ""},
		// 2026-01-04 is a Sunday.
		{"0 0 * * 7", "", "2026-01-01T12:00Z", []string{"2026-01-04T00:00Z", "2026-01-11T00:00Z"}, ""},
		{"0 0 * * 6-7", "", "2026-01-01T12:00Z", []string{"2026-01-03T00:00Z", "2026-01-04T00:00Z", "2026-01-10T00:00Z"}, ""},
		{"0 0 * * sat-7", "", "2026-01-01T12:00Z", []string{"2026-01-03T00:00Z", "2026-01-04T00:00Z"}, ""},
		{"0 0 * * 3-7/2", "", "2026-01-01T12:00Z", []string{"2026-01-02T00:00Z", "2026-01-04T00:00Z"}, ""},
		{"0 0 * * 7,3", "", "2026-01-01T12:00Z", []string{"2026-01-04T00:00Z", "2026-01-07T00:00Z"}, ""},
		{"0 0 * * SUN", "", "2026-01-01T12:00Z", []string{"2026-01-04T00:00Z"}, ""},
	} {
		calendar, err := NewCalendar(protocol.ScheduleSpec{Cron: []string{c.cron}, TimeZone: c.zone})
		if err != nil {
			t.Errorf("%s: %v", c.cron, err)
			continue
		}
		next := at(c.after)
		for i, want := range c.want {
			if next = calendar.Next(next); !next.Equal(at(want)) {
				t.Errorf("%s in %q: time %d is %s, want %s", c.cron, c.zone, i, next, want)
			}
			if i == 0 && calendar.MovedFrom(next) != c.moved {
				t.Errorf("%s in %q: moved from %q, want %q", c.cron, c.zone, calendar.MovedFrom(next), c.moved)
			}
		}
	}
	for _, text := range []string{
		"*/90 * * * *", "*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "5-10/6 * * * *", "50/10 * * * *", "0 0 * * 8",
		"0 0 * * 7-8", "0 0 * * x-7", "0 0 * * 5-7/x", "0 0 * * 5-7/0", "0 0 30 2 *", "@fortnightly", "0 0 * *", "60 * * * *",
		"0 0 * * 7/2",
	} {
		_, err := NewCalendar(protocol.ScheduleSpec{Cron: []string{text}})
		if protocol.ReasonOf(err) != protocol.ReasonValidation {
			t.Errorf("%s: got %v, want a refusal", text, err)
		}
	}
	// Parsing still accepts schedules that were stored before steps were checked.
	for _, text := range []string{"*/90 * * * *", "0 */24 * * *"} {
		if _, err := ParseCalendar(protocol.ScheduleSpec{Cron: []string{text}}); err != nil {
			t.Errorf("%s, stored: %v", text, err)
		}
	}
	for _, text := range []string{"*/59 * * * *", "0 */23 * * *", "0 0 */30 * *", "5-10/5 * * * *", "0 0 1-1/1 * *"} {
		if _, err := NewCalendar(protocol.ScheduleSpec{Cron: []string{text}}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
