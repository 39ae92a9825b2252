package protocol

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxErrorText is the maximum size of a stored or logged error text, in bytes.
const MaxErrorText = 16 << 10

// ErrorText cleans the text of an error for storage and logs: it removes NUL characters, replaces invalid UTF-8 by
// U+FFFD, and truncates the text to MaxErrorText bytes. Invalid texts of other kinds are rejected, but a program does
// not choose the errors that it fails with.
func ErrorText(s string) string {
	const more = "…"
	if len(s) <= MaxErrorText && badText(s) == "" {
		return s
	}
	long := len(s) > 2*MaxErrorText // truncate before the copies below
	if long {
		s = s[:2*MaxErrorText]
	}
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	if len(s) <= MaxErrorText && !long {
		return s
	}
	return strings.ToValidUTF8(s[:min(len(s), MaxErrorText-len(more))], "") + more
}

// fits reports whether JSON has at most MaxErrorText bytes and no text with NUL.
func fits(raw json.RawMessage) bool { return len(raw) <= MaxErrorText && !hasNUL(raw) }

// hasNUL reports whether a text of the JSON may contain NUL. It is also true for an escaped backslash before u0000.
func hasNUL(raw json.RawMessage) bool { return bytes.Contains(raw, []byte(`\u0000`)) }

// cleanedError applies ErrorText to the texts of a JSON object that describes an error.
func cleanedError(raw json.RawMessage) json.RawMessage {
	if fits(raw) {
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

// Cleaned returns a copy of the failure with ErrorText applied to its texts, and without diagnostics that are too large
// or contain NUL. It does not truncate the stack trace: the app truncates it before storing it and keeps the frame that
// failed.
func (f *Failure) Cleaned() *Failure {
	if f == nil {
		return nil
	}
	c := *f
	for _, text := range []*string{&c.Message, &c.Type, &c.Class, &c.Kind, &c.TimeoutType, &c.Reason} {
		*text = ErrorText(*text)
	}
	if !fits(c.Diagnostics) {
		c.Diagnostics = nil
	}
	return &c
}

// Cleaned returns a copy of the rebuild with ErrorText applied to its texts: the cause is the text of an error.
func (r *Recovered) Cleaned() *Recovered {
	if r == nil {
		return nil
	}
	c := *r
	c.Rebuild, c.Cause, c.Reason = ErrorText(c.Rebuild), ErrorText(c.Cause), ErrorText(c.Reason)
	if c.SetUp != nil {
		s := *c.SetUp
		s.Definition = ErrorText(s.Definition)
		c.SetUp = &s
	}
	return &c
}

// fails reports whether the command ends a run or an update with an error.
func (c *Command) fails() bool { return c.Type == FailWorkflow || c.Type == FailUpdate }

// Clean applies ErrorText to the error texts of a fail_workflow or fail_update command. Other commands do not change.
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

// Cleaned returns a copy of the outcome with ErrorText applied to its error texts. It does not change c's commands,
// which the sender may share.
func (c CompleteItem) Cleaned() CompleteItem {
	c.Failure, c.Returned, c.Commands = c.Failure.Cleaned(), ErrorText(c.Returned), cleanedCommands(c.Commands)
	c.Recovered = c.Recovered.Cleaned()
	if c.Eager != nil && anyFails(c.Eager.Commands) {
		eager := *c.Eager
		eager.Commands = cleanedCommands(eager.Commands)
		c.Eager = &eager
	}
	return c
}

// badText returns the reason why not every database can store s; empty if every database can.
func badText(s string) string {
	switch {
	case strings.Contains(s, "\x00"):
		return "must not contain the NUL character"
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	}
	return ""
}
