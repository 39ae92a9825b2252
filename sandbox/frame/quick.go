package frame

import (
	"bytes"
	"strconv"
)

// Fast paths that write and read the headers of a successful call in their usual form. Encoding them as general JSON
// takes as long as sending them. Other forms use the general functions.

// appendInvoke appends a header of type [Invoke], with the members that this type has; false if a value must be
// escaped.
func appendInvoke(dst []byte, h *Header) ([]byte, bool) {
	whole := true
	text := func(name, value string) {
		if value != "" {
			whole = whole && plain(value)
			dst = append(append(append(dst, name...), value...), '"')
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			dst = strconv.AppendInt(append(dst, name...), value, 10)
		}
	}
	truth := func(name string, value bool) {
		if value {
			dst = append(append(dst, name...), "true"...)
		}
	}
	text(`{"t":"`, h.T)
	text(`,"id":"`, h.ID)
	text(`,"hash":"`, h.Hash)
	text(`,"session":"`, h.Session)
	number(`,"epoch":`, h.Epoch)
	text(`,"activity":"`, h.Activity)
	text(`,"entry":"`, h.Entry)
	text(`,"export":"`, h.Export)
	number(`,"attempt":`, int64(h.Attempt))
	number(`,"deadline_ms":`, h.DeadlineMS)
	if len(h.Keys) > 0 {
		before := `,"keys":{"`
		for key, value := range h.Keys {
			whole = whole && plain(key) && plain(value)
			dst = append(append(append(append(dst, before...), key...), `":"`...), value...)
			before = `","`
		}
		dst = append(dst, `"}`...)
	}
	truth(`,"is_new":`, h.IsNew)
	truth(`,"lend":`, h.Lend)
	number(`,"room":`, int64(h.Shared))
	return append(dst, '}'), whole
}

// plain reports whether JSON represents a text without escapes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// readResult parses a header of type [Result]; false if it is not in the usual form.
func readResult(h *Header, raw []byte) bool {
	rest, ok := bytes.CutPrefix(raw, []byte(`{"t":"result","id":"`))
	id, rest, ended := bytes.Cut(rest, []byte(`"`))
	if !ok || !ended || !plain(string(id)) {
		return false
	}
	var usage *Usage
	var room int
	if of, ok := bytes.CutPrefix(rest, []byte(`,"usage":{"cpu_ms":`)); ok {
		spent, of, mid := bytes.Cut(of, []byte(`,"rss":`))
		resident, of, end := bytes.Cut(of, []byte(`}`))
		cpu, err := strconv.ParseFloat(string(spent), 64)
		rss, wrong := strconv.ParseInt(string(resident), 10, 64)
		if !mid || !end || err != nil || wrong != nil || !digits(spent) || !digits(resident) {
			return false
		}
		usage, rest = &Usage{CPUMS: cpu, RSS: rss}, of
	}
	if of, ok := bytes.CutPrefix(rest, []byte(`,"room":`)); ok {
		size, of, end := bytes.Cut(of, []byte(`}`))
		n, err := strconv.Atoi(string(size))
		if !end || len(of) > 0 || err != nil || !digits(size) {
			return false
		}
		room, rest = n, []byte(`}`)
	}
	if string(rest) != `}` {
		return false
	}
	h.T, h.ID, h.Usage, h.Shared = Result, string(id), usage, room
	return true
}

// digits reports whether b is a number in its usual form: digits with at most one inner decimal point, without leading
// zeros.
func digits(b []byte) bool {
	whole, part, point := bytes.Cut(b, []byte("."))
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' || point && len(part) == 0 {
		return false
	}
	for _, c := range b {
		if (c < '0' || c > '9') && c != '.' {
			return false
		}
	}
	return bytes.IndexByte(part, '.') < 0
}
