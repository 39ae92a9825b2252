package sandbox_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// A fork bomb ends within five seconds at default limits, whichever mechanism limits the number of processes. The bomb
// of this test exits after 40 seconds.
func TestAForkBombEndsWithinFiveSeconds(t *testing.T) {
	for name, o := range map[string]sandbox.Options{
		"bounded by its user":   {Blank: -1, Cgroup: sandbox.CgroupNone},
		"confined":              {Blank: -1, Cgroup: sandbox.CgroupNone, Level: sandbox.LevelConfined},
		"bounded by its group":  {Blank: -1, Users: sandbox.UsersNone},
		"found by the watchdog": {Blank: -1, Users: sandbox.UsersNone, Cgroup: sandbox.CgroupNone},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Users == "" {
				o = open(t, o)
			}
			b := Open(t, Targets[2], o)
			b.Run(In("s", 1, b.Call("count")))
			at := time.Now()
			err := b.Fail(In("s", 1, b.Call("busybomb")))
			if took := time.Since(at); took > 5*time.Second {
				t.Errorf("ended after %s: %v", took, err)
			}
			b.Fail(In("s", 1, b.Call("count"))) // all its processes have ended, and not only the first
			b.Run(In("s2", 1, b.Call("count")))
		})
	}
}
