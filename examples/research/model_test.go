package research

import (
	"slices"
	"strings"
	"testing"
)

func TestNearestFindsThePassageThatAnswers(t *testing.T) {
	m := NewModel(library)
	if m.Passages() < 25 || m.Words() < 200 {
		t.Fatalf("the model has %d passages and %d words", m.Passages(), m.Words())
	}
	for question, want := range map[string]string{
		"what do blue whales eat":    "blue whale",
		"how does bread rise":        "yeast",
		"why are glacier lakes blue": "Glaciers",
		"who invented paper":         "Paper was made",
	} {
		got := m.Nearest(question, 3)
		if len(got) == 0 || !strings.Contains(got[0].Text, want) {
			t.Errorf("nearest to %q is %v, want a passage with %q", question, got, want)
		}
	}
	if got := m.Nearest("zzz qqq", 3); len(got) != 0 {
		t.Errorf("a question of unknown words matches %v", got)
	}
}

func TestKeywordsAreOfThePassagesTheyDescribe(t *testing.T) {
	m := NewModel(library)
	near := m.Nearest("whales hunting squid", 1)
	words := m.Keywords([]int{near[0].Passage}, 5)
	if len(words) != 5 || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(near[0].Text, w) }) {
		t.Errorf("keywords of %q are %v", near[0].Text, words)
	}
	if got := m.Keywords([]int{-1, 10_000}, 5); len(got) != 0 {
		t.Errorf("keywords of no passage are %v", got)
	}
}
