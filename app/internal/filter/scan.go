package filter

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	endToken tokenKind = iota
	nameToken
	textToken
	numberToken
	boolToken
	opToken
)

// token is one piece of a filter; at is the position of its first character, from 1.
type token struct {
	kind tokenKind
	text string
	at   int
}

// String returns the token as errors show it.
func (t token) String() string {
	switch t.kind {
	case endToken:
		return "the end"
	case textToken:
		return strconv.Quote(t.text)
	}
	return t.text
}

// isKeyword reports whether the token is this word, in any case.
func (t token) isKeyword(w string) bool { return t.kind == nameToken && strings.EqualFold(t.text, w) }

// scan splits a filter into tokens; the last one marks the end.
func scan(text string) ([]token, error) {
	var tokens []token
	at := 1 // position of the remaining text, in characters
	for {
		blank := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
		at, text = at+utf8.RuneCountInString(text[:blank]), text[blank:]
		t := token{at: at}
		if text == "" {
			return append(tokens, t), nil
		}
		size, err := t.scan(text)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
		at, text = at+utf8.RuneCountInString(text[:size]), text[size:]
	}
}

// scan reads one token and returns its length in bytes.
func (t *token) scan(text string) (size int, err error) {
	c, _ := utf8.DecodeRuneInString(text)
	switch {
	case c == '\'' || c == '"' || c == '`':
		t.kind = textToken
		if c == '`' {
			t.kind = nameToken
		}
		return t.quoted(text, byte(c))
	case strings.ContainsRune("=<>!", c):
		t.kind, t.text = opToken, text[:1]
		if len(text) > 1 && (text[1] == '=' || text[:2] == "<>") {
			t.text = text[:2]
		}
		if t.text == "!" {
			return 0, wrongAt(*t, "! is no operator; use !=")
		}
		return len(t.text), nil
	case strings.ContainsRune("(),", c):
		t.kind, t.text = opToken, text[:1]
		return 1, nil
	case c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.':
		size = len(text) - len(strings.TrimLeft(text, "0123456789.eE+-"))
		t.kind, t.text = numberToken, strings.TrimPrefix(text[:size], "+")
		if _, err := strconv.ParseFloat(t.text, 64); err != nil {
			return 0, wrongAt(*t, "%s is not a number; put texts in quotes", t.text)
		}
		return size, nil
	case unicode.IsLetter(c) || c == '_':
		size = strings.IndexFunc(text, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.:-", r)
		})
		if size < 0 {
			size = len(text)
		}
		t.kind, t.text = nameToken, text[:size]
		if t.isKeyword("true") || t.isKeyword("false") {
			t.kind = boolToken
		}
		return size, nil
	}
	return 0, wrongAt(*t, "%q is not known", c)
}

// quoted reads a text or name between quotes; a quote in it is doubled, or follows a backslash.
func (t *token) quoted(text string, quote byte) (int, error) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && (text[i+1] == quote || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		case c != quote:
			b.WriteByte(c)
		case i+1 < len(text) && text[i+1] == quote:
			i++
			b.WriteByte(quote)
		default:
			t.text = b.String()
			return i + 1, nil
		}
	}
	return 0, wrongAt(*t, "the quote is not closed")
}
