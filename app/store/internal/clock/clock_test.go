package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// server is the clock of a database; by is its difference from real time.
type server struct{ by time.Duration }

func (s *server) micros() int64 { return time.Now().Add(s.by).UnixMicro() }

// read reads the clock of a server. The request takes the time there, the response the time back.
func read(c *Clock, s *server, there, back time.Duration) {
	sent := c.Steady()
	time.Sleep(there)
	at := s.micros()
	time.Sleep(back)
	c.At(at, sent)
}

func TestAClockJumpIsDetectedWithItsLength(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour, -2 * time.Minute, 2 * time.Minute, -100 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var c Clock
			var s server
			read(&c, &s, 0, time.Millisecond)
			time.Sleep(10 * time.Minute)
			s.by = by
			read(&c, &s, time.Millisecond, 0)
			if !c.Pending() {
				t.Fatalf("%s: no jump was found", by)
			}
			<-c.Jumped()
			if got := c.TakeJump(); (got - by).Abs() > time.Second {
				t.Errorf("a jump of %s is measured as %s", by, got)
			}
			if !c.Pending() {
				t.Error("a jump that is not settled is forgotten")
			}
			c.JumpHandled(0)
			read(&c, &s, 0, 0)
			if got := c.TakeJump(); got != 0 {
				t.Errorf("%s was found again as %s", by, got)
			}
		})
	}
}

// None of these is a jump: slow responses, a stopped process, a suspended machine, a clock that runs fast or is
// corrected by less than a minute, and a response of the time before a jump that arrives after it.
func TestDelaysAndSmallStepsAreNoJumps(t *testing.T) {
	for name, happens := range map[string]func(*Clock, *server){
		"slow request":     func(c *Clock, s *server) { read(c, s, 10*time.Minute, 0) },
		"slow response":    func(c *Clock, s *server) { read(c, s, 0, 10*time.Minute) },
		"stopped between":  func(*Clock, *server) { time.Sleep(24 * time.Hour) },
		"stopped, stopped": func(c *Clock, s *server) { read(c, s, time.Hour, time.Hour); read(c, s, time.Hour, 0) },
		"runs fast": func(c *Clock, s *server) {
			for range 100 {
				time.Sleep(time.Hour)
				s.by += 40 * time.Second
				read(c, s, 0, time.Millisecond)
			}
		},
		"corrected by NTP": func(_ *Clock, s *server) { s.by -= 59 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Clock
				var s server
				read(&c, &s, 0, time.Millisecond)
				happens(&c, &s)
				read(&c, &s, 0, time.Millisecond)
				if by := c.TakeJump(); by != 0 {
					t.Errorf("a jump of %s", by)
				}
			})
		})
	}
	t.Run("late response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c Clock
			var s server
			read(&c, &s, 0, 0)
			sent, old := c.Steady(), s.micros()
			s.by = time.Hour
			time.Sleep(time.Second)
			read(&c, &s, 0, 0)
			c.At(old, sent)
			read(&c, &s, 0, 0)
			if by := c.TakeJump(); (by - time.Hour).Abs() > time.Second {
				t.Errorf("a jump of %s", by)
			}
		})
	})
	t.Run("suspended machine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			defer func() { wasSuspended = suspended }()
			wasSuspended = func() time.Duration { return 0 }
			var c Clock
			var s server
			read(&c, &s, 0, 0)
			s.by, wasSuspended = time.Hour, func() time.Duration { return time.Hour } // the monotonic clock stopped meanwhile
			read(&c, &s, 0, 0)
			if by := c.TakeJump(); by != 0 {
				t.Errorf("a jump of %s", by)
			}
		})
	})
}

// The clock of the process does not move while the machine's clock is set back by less than a minute. It follows a
// larger step back, whether made at once, in several steps, or before Open.
func TestTheProcessClockFollowsOnlyJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		c := Clock{Wall: func() time.Time { return time.Now().Add(s.by) }}
		began := c.Now()
		s.by = -50 * time.Second
		if now := c.Now(); !now.Equal(began) || c.TakeJump() != 0 {
			t.Errorf("set back by less than a minute, the clock reads %s after %s", now, began)
		}
		s.by = -100 * time.Second
		if now, by := c.Now(), c.TakeJump(); now.Sub(began) != s.by || by != s.by {
			t.Errorf("set back again, the clock reads %s after %s, a jump of %s", now, began, by)
		}
		c.JumpHandled(0)
		s.by = time.Hour
		if now, by := c.Now(), c.TakeJump(); now.Sub(began) != s.by || by != time.Hour+100*time.Second {
			t.Errorf("set forward, the clock reads %s after %s, a jump of %s", now, began, by)
		}
		var late Clock
		late.Open(time.Now().Add(time.Hour).UnixMicro(), time.Time{})
		now, by := late.Now(), late.TakeJump()
		if !now.Equal(time.Now().Truncate(time.Microsecond).UTC()) || by != -time.Hour {
			t.Errorf("opened an hour behind the newest stored time, the clock reads %s, a jump of %s", now, by)
		}
		var shared Clock
		shared.Open(time.Now().Add(time.Hour).UnixMicro(), time.Now())
		if by := shared.TakeJump(); (by + time.Hour).Abs() > time.Second {
			t.Errorf("a shared clock an hour behind the newest stored time: a jump of %s", by)
		}
	})
}
