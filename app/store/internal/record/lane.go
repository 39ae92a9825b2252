package record

import (
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// A ready task has a route: namespace, queue, kind, lane and the routing word of its session, with RouteSeparator
// between them. A lane is what the task asks of any worker, with LaneSeparator between its parts.
const (
	RouteSeparator = "\x1f"
	LaneSeparator  = "\x1e"
)

// SessionLane is the kind of lanes of tasks in sessions, SuspectLane the prefix of the kinds of lanes of suspects.
const (
	SessionLane = "s"
	SuspectLane = "x"
)

// ParseLane reads the text of a lane. kind is its first part. A text that is no lane was written by a later release, or
// by hand.
func ParseLane(text string) (kind string, lane store.Lane, ok bool) {
	parts := strings.Split(text, LaneSeparator)
	if len(parts) < 3 {
		return "", store.Lane{}, false
	}
	return parts[0], store.Lane{Type: parts[1], BuildID: parts[2], Requirements: parts[3:]}, true
}

// HasReady returns the condition on a row of lanes that a ready task has this lane. Such tasks are in one range of the
// index of routes, from the separator after the lane up to the character after the separator.
func HasReady(d db.Dialect) string {
	char := "char"
	if d.Shared {
		char = "chr"
	}
	parts := []string{"namespace", "queue", "kind", "lane"}
	for i, p := range parts {
		parts[i] = "lanes." + p
	}
	return fmt.Sprintf(
		"EXISTS (SELECT 1 FROM tasks AS t WHERE t.route >= %[1]s || %[2]s(31) AND t.route < %[1]s || %[2]s(32))",
		strings.Join(parts, " || "+char+"(31) || "), char,
	)
}
