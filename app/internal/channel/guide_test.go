package channel_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const guideFile = "../../../docs/guide/socket-workers.md"

// guide is the page that workers are written from, by the headings of its parts.
type guide map[string]string

func readGuide(t *testing.T) guide {
	t.Helper()
	raw, err := os.ReadFile(guideFile)
	if err != nil {
		t.Fatal(err)
	}
	g := guide{}
	for _, part := range strings.Split(string(raw), "\n## ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		g[name] = text
	}
	return g
}

var quoted = regexp.MustCompile("`([^`]+)`")

// rows returns the cells of a section's table whose header begins with a word.
func (g guide) rows(t *testing.T, part, head string) [][]string {
	t.Helper()
	_, table, found := strings.Cut(g[part], "\n| "+head+" |")
	if !found {
		t.Fatalf("%q has no table of %s", part, head)
	}
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
	}
	return rows
}

// first returns the names in the first column.
func (g guide) first(t *testing.T, part, head string) (names []string) {
	t.Helper()
	for _, row := range g.rows(t, part, head) {
		for _, m := range quoted.FindAllStringSubmatch(row[0], -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// members returns the names in the braces at the beginning of a cell.
func members(cell string) (names []string) {
	list := regexp.MustCompile(`^.\{([^}]*)\}`).FindStringSubmatch(strings.TrimSpace(cell))
	if list == nil {
		return nil
	}
	for _, m := range strings.Split(strings.SplitN(list[1], "[", 2)[0], ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(m), ":")
		if name != "" && name != "…" {
			names = append(names, name)
		}
	}
	return names
}

// membersOf returns the members of a definition in the published schema.
func membersOf(t *testing.T, defs object, name string) []string {
	t.Helper()
	def, ok := defs[name].(object)
	for ok && def["$ref"] != nil {
		name = strings.TrimPrefix(def["$ref"].(string), "#/$defs/")
		def, ok = defs[name].(object)
	}
	properties, ok := def["properties"].(object)
	if !ok {
		t.Fatalf("the schema has no members of %s", name)
	}
	return slices.Sorted(maps.Keys(properties))
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the guide has %v, the schema %v", what, got, want)
	}
}

// The guide names exactly the methods, members, notices, statuses and kinds of the schema.
func TestTheGuideOfTheChannelIsItsSchema(t *testing.T) {
	g := readGuide(t)
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Defs object `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	defs := file.Defs
	values := func(path ...string) (out []string) {
		var at any = defs
		for _, p := range path {
			at = at.(object)[p]
		}
		for _, v := range at.(object)["enum"].([]any) {
			out = append(out, v.(string))
		}
		return out
	}
	within := func(what string, names, all []string) {
		t.Helper()
		for _, n := range names {
			if !slices.Contains(all, n) {
				t.Errorf("%s: the guide names %q, the schema has %v", what, n, all)
			}
		}
	}

	same(t, "the auth object", g.first(t, "Connect", "member"), membersOf(t, defs, "auth"))

	same(t, "register", g.first(t, "Register", "member"), membersOf(t, defs, "register.payload"))

	methods := values("call", "properties", "method")
	same(t, "methods", append(g.first(t, "Calls", "method"), protocol.MethodSettings), methods)
	for _, row := range g.rows(t, "Calls", "method") {
		for _, m := range quoted.FindAllStringSubmatch(row[0], -1) {
			within(m[1], members(row[1]), membersOf(t, defs, m[1]+".payload"))
		}
	}

	within("a poll", g.first(t, "Poll", "member"), membersOf(t, defs, "poll.payload"))
	for _, row := range g.rows(t, "Poll", "member") {
		if _, list, found := strings.Cut(row[1], "kinds are "); found {
			var kinds []string
			for _, m := range quoted.FindAllStringSubmatch(list, -1) {
				kinds = append(kinds, m[1])
			}
			same(t, "kinds of jobs", kinds, values("job", "properties", "kind"))
		}
	}
	whole := defs["pollAnswer"].(object)["anyOf"].([]any)[2].(object)["properties"].(object)
	// These two are refusals on a socket: conflict with the reason of the HTTP API, the other with its own.
	refused := []string{string(protocol.PollConflict), string(protocol.PollBackend)}
	listed := append(g.first(t, "Poll", "`pollStatus`"), refused...)
	var statuses []string
	for _, v := range whole["pollStatus"].(object)["enum"].([]any) {
		statuses = append(statuses, v.(string))
	}
	same(t, "pollStatus", listed, statuses)

	same(t, "statuses of a job", g.first(t, "Complete", "`status`"), values("jobOutcome", "properties", "status"))

	same(t, "notices", g.first(t, "Notices", "`method`"), values("notice", "properties", "method"))
	for _, row := range g.rows(t, "Notices", "`method`") {
		m := quoted.FindStringSubmatch(row[0])
		same(t, "the notice "+m[1], members(row[1]), membersOf(t, defs, m[1]+".notice"))
	}

	// Each example matches the definition of its section.
	s := published(t)
	examples := map[string][]string{
		"Settings first": {"machine", "settings"}, "Calls": {"refusal"}, "Poll": {"poll.answer"},
	}
	for part, names := range examples {
		blocks := strings.Split(g[part], "```json\n")[1:]
		if len(blocks) != len(names) {
			t.Errorf("%s has %d examples, want %d", part, len(blocks), len(names))
			continue
		}
		for i, b := range blocks {
			text, _, _ := strings.Cut(b, "```")
			s.add(names[i], json.RawMessage(text))
		}
	}
}
