package filter

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A status word may select several stored statuses, and depends on the place: ?status= uses the buckets of the HTTP
// API, and the name Status in a filter the status that a run is shown with. A stored status that is neither word
// selects itself. The CLI and the dashboard offer the stored statuses, each selected alone with ?stored_status=.

// statusesFor returns the stored statuses that the API shows under one word; nameOf maps a stored status to its word.
// It returns nil for an unknown word.
func statusesFor(name string, nameOf func(protocol.RunStatus) string) (statuses []protocol.RunStatus) {
	for _, s := range protocol.RunStatuses {
		if nameOf(s) == name || string(s) == name {
			statuses = append(statuses, s)
		}
	}
	return statuses
}

// shownAs returns the status that a run is shown with.
func shownAs(s protocol.RunStatus) string {
	word, _, _ := protocol.PublicRun(s, true, true)
	return word
}

// bucket returns the word of a status in ?status=; failed covers every run that closed without completing.
func bucket(s protocol.RunStatus) string {
	_, word, _ := protocol.PublicRun(s, true, true)
	return word
}

func verbatim(s protocol.RunStatus) string { return string(s) }

// Statuses returns the stored statuses that ?status= or ?stored_status= selects; nil selects all.
func Statuses(word, stored string) ([]protocol.RunStatus, error) {
	field, wordOf := "status", bucket
	if stored != "" {
		if word != "" {
			return nil, protocol.Invalid("stored_status", "cannot be combined with status; set one of them")
		}
		field, word, wordOf = "stored_status", stored, verbatim
	}
	if word == "" {
		return nil, nil
	}
	these := statusesFor(word, wordOf)
	if these == nil {
		return nil, protocol.Invalid(field, "must be one of %s, not %q", words(), word)
	}
	return these, nil
}

// words returns all words for a status, for error messages.
func words() string {
	var all []string
	for _, s := range protocol.RunStatuses {
		all = append(all, string(s))
	}
	return strings.Join(all, ", ")
}
