package docnumbers

import (
	"testing"
	"time"
)

func TestSentenceIsComparedWithItsValues(t *testing.T) {
	const page = "It holds at most `max-polls` (10,000) polls, each\nfor 30 s. A body has 2 MiB, ten words,\n" +
		"half a second, three minutes and a week. Its port is `7701`. Once more, once more."
	for _, c := range []struct {
		sentence string
		values   []any
	}{
		{"at most `max-polls` ({}) polls, each for {}.", []any{10_000, 30 * time.Second}},
		{"has {}, {} words,", []any{int64(2 << 20), 10}},
		{"{}, {} and {}.", []any{time.Second / 2, 3 * time.Minute, 7 * 24 * time.Hour}},
		{"Its port is `{}`", []any{"7701"}},
		{"Its port is `{}`", []any{7701}},
		{"A body has", nil},
	} {
		if err := compare(page, c.sentence, c.values); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		sentence string
		values   []any
	}{
		{"(`max-polls` {}) polls", []any{10_000}},
		{"`max-polls` ({}) polls", []any{10_001}},
		{"each for {}.", []any{30}},
		{"each for {}.", []any{31 * time.Second}},
		{"has {}, ten", []any{2 << 10}},
		{"{} words", []any{10 * time.Second}},
		{"port is `{}`", []any{"7700"}},
		{"more", nil},
		{"A body has", []any{1}},
	} {
		if err := compare(page, c.sentence, c.values); err == nil {
			t.Errorf("%q with %v is accepted as a sentence of the page", c.sentence, c.values)
		}
	}
}
