package record

import (
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// A ready task has a route: namespace, queue, kind, routing key and the routing word of its session, with
// RouteSeparator between them. A routing key contains the requirements of the task that do not depend on its session,
// with RoutingKeySeparator between its parts.
const (
	RouteSeparator      = "\x1f"
	RoutingKeySeparator = "\x1e"
)

// SessionKeyKind is the kind of routing keys of tasks in sessions, SuspectKeyPrefix the prefix of the kinds of routing
// keys of suspects.
const (
	SessionKeyKind   = "s"
	SuspectKeyPrefix = "x"
)

// ParseRoutingKey reads the text of a routing key. kind is its first part. A text that is no routing key was written by
// a later release, or by hand.
func ParseRoutingKey(text string) (kind string, key store.RoutingKey, ok bool) {
	parts := strings.Split(text, RoutingKeySeparator)
	if len(parts) < 3 {
		return "", store.RoutingKey{}, false
	}
	return parts[0], store.RoutingKey{Type: parts[1], BuildID: parts[2], Requirements: parts[3:]}, true
}

// HasReady returns the condition on a row of routing keys that a ready task has this routing key. The routes of such
// tasks are one range of the index, from the separator after the routing key up to the character after the separator.
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
