package protocol

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxErrorText is how many bytes of an error text are stored and logged.
const MaxErrorText = 16 << 10

// ErrorText returns the text of an error as it is stored and logged: without NUL characters, with U+FFFD in place of
// invalid UTF-8, and of at most MaxErrorText bytes. A program does not choose what it fails with, so such a text is
// cleaned where the texts of other members are refused.
func ErrorText(s string) string {
	const more = "…"
	if len(s) <= MaxErrorText && badText(s) == "" {
		return s
	}
	long := len(s) > 2*MaxErrorText // more than cleaning can remove
	if long {
		s = s[:2*MaxErrorText]
	}
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	if len(s) <= MaxErrorText && !long {
		return s
	}
	return strings.ToValidUTF8(s[:min(len(s), MaxErrorText-len(more))], "") + more
}

// cleanedError returns an error object of JSON with its texts as ErrorText returns them.
func cleanedError(raw json.RawMessage) json.RawMessage {
	if len(raw) <= MaxErrorText && !bytes.Contains(raw, []byte(`\u0000`)) {
		return raw
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return raw
	}
	for name, member := range members {
		var text string
		if json.Unmarshal(member, &text) == nil && text != ErrorText(text) {
			members[name], _ = json.Marshal(ErrorText(text)) // a string always has a JSON form
		}
	}
	out, err := json.Marshal(members)
	if err != nil {
		return raw
	}
	return out
}

// Cleaned returns the failure with its texts as ErrorText returns them. The stack keeps its length: it is shortened
// where it is stored, at the frame where the code failed.
func (f *Failure) Cleaned() *Failure {
	if f == nil {
		return nil
	}
	c := *f
	for _, text := range []*string{&c.Message, &c.Type, &c.Class, &c.Kind, &c.TimeoutType, &c.Reason} {
		*text = ErrorText(*text)
	}
	return &c
}

// fails reports whether the command ends a run or an update with an error.
func (c *Command) fails() bool { return c.Type == FailWorkflow || c.Type == FailUpdate }

// Clean replaces the error texts of a command by those that ErrorText returns. Commands without an error do not change.
func (c *Command) Clean() {
	if !c.fails() {
		return
	}
	for _, text := range []*string{&c.Message, &c.ExceptionType, &c.ExceptionClass} {
		*text = ErrorText(*text)
	}
	c.Exception = cleanedError(c.Exception)
}

// cleanedCommands returns the commands with cleaned error texts, without a copy if there is none to clean.
func cleanedCommands(commands []Command) []Command {
	if !anyFails(commands) {
		return commands
	}
	commands = slices.Clone(commands)
	for i := range commands {
		commands[i].Clean()
	}
	return commands
}

func anyFails(commands []Command) bool {
	for i := range commands { // not by value: a command has many members
		if commands[i].fails() {
			return true
		}
	}
	return false
}

// Cleaned returns the outcome with the texts of its errors as ErrorText returns them. It changes nothing that the
// sender shares.
func (c CompleteItem) Cleaned() CompleteItem {
	c.Failure, c.Returned, c.Commands = c.Failure.Cleaned(), ErrorText(c.Returned), cleanedCommands(c.Commands)
	if c.Then != nil && anyFails(c.Then.Commands) {
		then := *c.Then
		then.Commands = cleanedCommands(then.Commands)
		c.Then = &then
	}
	return c
}

// badText returns why not every database can store a text; empty if every database can.
func badText(s string) string {
	switch {
	case strings.Contains(s, "\x00"):
		return "must not contain the NUL character"
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	}
	return ""
}
