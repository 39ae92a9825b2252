package activity_test

import (
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/worker/activity"
)

// If the result of a set-up is replaced, it is torn down once, when the last activity that uses it has ended.
func TestStateIsTornDownAfterTheLastActivityThatUsesIt(t *testing.T) {
	var released []string
	s := activity.NewSessionValues()
	set := func(name string) { s.SetUp(name, func() { released = append(released, name) }) }
	want := func(what string, names ...string) {
		t.Helper()
		if !slices.Equal(released, names) {
			t.Errorf("%s: torn down %q, want %q", what, released, names)
		}
	}
	set("one")
	first, second := s.Use(), s.Use()
	first()
	s.TearDown()
	want("while an activity uses it")
	set("two")
	third := s.Use()
	second()
	want("after the last activity", "one")
	third()
	want("nobody declared the second state lost", "one")
	set("three")
	want("a replaced state without users", "one", "two")
	s.Close()
	want("at the end", "one", "two", "three")
	s.Use()()
	s.Close()
	want("again", "one", "two", "three")
}
