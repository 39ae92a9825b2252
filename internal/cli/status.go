package cli

import (
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// statusNames returns the statuses of runs, with the same words as the dashboard and the store.
func statusNames() (words []string) {
	for _, s := range protocol.RunStatuses {
		words = append(words, string(s))
	}
	return words
}

// statusOf returns the status of a run, one of statusNames.
func statusOf(v protocol.RunView) string { return string(protocol.StoredRun(v.Status, v.ClosedReason)) }

// colored returns the status in the dashboard's colour if the output is a terminal and NO_COLOR is not set. Statuses
// that were requested or need no attention, such as draining or an unheld session, have no colour.
func (p *program) colored(status string) string {
	f, file := p.out.(*os.File)
	if !file || os.Getenv("NO_COLOR") != "" {
		return status
	}
	if at, err := f.Stat(); err != nil || at.Mode()&os.ModeCharDevice == 0 {
		return status
	}
	switch status {
	case "failed", "timed_out", "mismatched":
		return text.FgRed.Sprint(status)
	case "completed", "active":
		return text.FgGreen.Sprint(status)
	case "running":
		return text.FgBlue.Sprint(status)
	}
	return status
}

// inOneLine joins the lines of a text, such as the text of errors.Join, with semicolons.
func inOneLine(s string) string {
	lines := strings.FieldsFunc(strings.TrimSpace(s), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}
