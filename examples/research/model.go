package research

import (
	"cmp"
	_ "embed"
	"math"
	"slices"
	"strings"
	"unicode"
)

//go:embed passages.txt
var library string

// Model finds the passages of a text that are nearest to a question. It is built in memory and lives in the session
// that built it.
type Model struct {
	passages []string
	vectors  []map[string]float64 // of unit length: weight of each word in each passage
	rarity   map[string]float64
}

// Match is a passage with its nearness to the question, 0 to 1.
type Match struct {
	Passage int     `json:"passage"`
	Text    string  `json:"text"`
	Score   float64 `json:"score"`
}

// NewModel reads passages that are separated by blank lines.
func NewModel(text string) *Model {
	m := &Model{rarity: map[string]float64{}}
	for p := range strings.SplitSeq(text, "\n\n") {
		if p = strings.TrimSpace(p); p != "" {
			m.passages = append(m.passages, p)
		}
	}
	counts := make([]map[string]float64, len(m.passages))
	for i, p := range m.passages {
		counts[i] = count(p)
		for w := range counts[i] {
			m.rarity[w]++
		}
	}
	for w, n := range m.rarity {
		m.rarity[w] = math.Log(1 + float64(len(m.passages))/n)
	}
	for _, c := range counts {
		m.vectors = append(m.vectors, m.weigh(c))
	}
	return m
}

// Passages returns the number of passages.
func (m *Model) Passages() int { return len(m.passages) }

// Words returns the number of different words.
func (m *Model) Words() int { return len(m.rarity) }

// Nearest returns the k passages nearest to the question, the nearest first, without passages that share no word with
// it.
func (m *Model) Nearest(question string, k int) []Match {
	q := m.weigh(count(question))
	var all []Match
	for i, v := range m.vectors {
		score := 0.0
		for w, x := range q {
			score += x * v[w]
		}
		if score > 0 {
			all = append(all, Match{Passage: i, Text: m.passages[i], Score: math.Round(score*1000) / 1000})
		}
	}
	slices.SortFunc(all, func(a, b Match) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Passage, b.Passage))
	})
	return all[:min(k, len(all))]
}

// Keywords returns the n words with the highest weight in these passages together.
func (m *Model) Keywords(passages []int, n int) []string {
	sum := map[string]float64{}
	for _, p := range passages {
		if p >= 0 && p < len(m.vectors) {
			for w, x := range m.vectors[p] {
				sum[w] += x
			}
		}
	}
	words := make([]string, 0, len(sum))
	for w := range sum {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(sum[b], sum[a]), strings.Compare(a, b)) })
	return words[:min(n, len(words))]
}

// weigh converts counts to a vector of unit length in which rare words count more.
func (m *Model) weigh(counts map[string]float64) map[string]float64 {
	v, length := map[string]float64{}, 0.0
	for w, n := range counts {
		x := (1 + math.Log(n)) * m.rarity[w]
		v[w] = x
		length += x * x
	}
	if length = math.Sqrt(length); length > 0 {
		for w := range v {
			v[w] /= length
		}
	}
	return v
}

// common are frequent words without significance for a passage.
var common = []string{
	"that", "than", "this", "they", "them", "their", "from", "with", "which", "have", "more", "most", "into", "when",
	"what", "were",
}

// count counts the words of a text without plural endings.
func count(text string) map[string]float64 {
	c := map[string]float64{}
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if len(w) > 3 && !slices.Contains(common, w) {
			c[strings.TrimSuffix(w, "s")]++
		}
	}
	return c
}
