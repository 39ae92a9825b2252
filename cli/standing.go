package cli

import (
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// standings are the words for how a run stands, the same as the dashboard's: the stored statuses, each itself.
func standings() (words []string) {
	for _, s := range protocol.RunStatuses {
		words = append(words, string(s))
	}
	return words
}

// standing is how a run stands, in one of these words.
func standing(v protocol.RunView) string { return string(protocol.StoredRun(v.Status, v.ClosedReason)) }

// tinted colours the word for a status where a person looks: on a terminal, unless NO_COLOR says otherwise. The colours
// are the dashboard's: what was asked for, or continues without anybody, as a drain and a session that is free, has
// none.
func (p *program) tinted(status string) string {
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

// inOneLine is a text on one line: errors that were joined, which are a line each, stand behind one another.
func inOneLine(s string) string {
	lines := strings.FieldsFunc(strings.TrimSpace(s), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}
