package protocol_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// whole is a wait of which everything is known.
func whole(t *testing.T) protocol.Wait {
	w := protocol.Wait{
		WorkerQueues: []string{"default"}, Missing: []string{"gpu", "arm64"},
		Resources: protocol.Resources{"gpu_mem": protocol.Bytes(24 << 30)},
		WorkerResources: []protocol.WorkerResource{{
			Worker: "a", Name: "gpu_mem", Free: protocol.Bytes(8 << 30), Total: protocol.Bytes(80 << 30),
		}},
	}
	v := reflect.ValueOf(&w).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Interface().(type) {
		case history.Time:
			f.Set(reflect.ValueOf(history.At(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))))
		case string:
			f.SetString(v.Type().Field(i).Name)
		case int:
			f.SetInt(7)
		case bool, []string, protocol.WaitKind, protocol.WaitReason, protocol.Resources, []protocol.WorkerResource:
		default:
			t.Fatalf("nobody says how %s is shown", v.Type().Field(i).Name)
		}
	}
	w.Kind = protocol.WaitForActivity
	return w
}

// Every rule uses only members of Wait, has a form and a patience, and has a text for a wait without members.
func TestEveryReasonHasItsSentence(t *testing.T) {
	seen := map[protocol.WaitReason]bool{}
	for _, r := range protocol.WaitRules {
		if seen[r.Reason] {
			t.Errorf("%s stands twice", r.Reason)
		}
		seen[r.Reason] = true
		w := whole(t)
		w.Reason = r.Reason
		text := w.Say(time.UTC)
		for _, part := range strings.FieldsFunc(r.Text, func(c rune) bool { return c == '[' || c == ']' || c == '|' }) {
			for i, name := range strings.Split(part, "{")[1:] {
				name, _, closed := strings.Cut(name, "}")
				if one := (protocol.WaitRule{Text: "{" + name + "}"}); !closed || name == "" ||
					protocol.Filled(&w, one.Text) == "" {
					t.Errorf("%s names %q (the %dth of %q), which a wait does not have", r.Reason, name, i, part)
				}
			}
		}
		if strings.ContainsAny(text, "{}[]|") || strings.TrimSpace(text) == "" {
			t.Errorf("%s: %q", r.Reason, text)
		}
		switch r.Form {
		case protocol.FormAlone, protocol.FormPredicate, protocol.FormClause:
		default:
			t.Errorf("%s has form %q", r.Reason, r.Form)
		}
		switch r.Patience {
		case protocol.PatienceEndless, protocol.PatienceShort, protocol.PatienceBrief, protocol.PatienceNone:
		default:
			t.Errorf("%s has patience %q", r.Reason, r.Patience)
		}
	}
}

// A wait's text contains its times in the zone of the reader.
func TestWaitMessageUsesATimeZone(t *testing.T) {
	w := protocol.Wait{
		Kind: protocol.WaitForActivity, Reason: protocol.WaitSessionHeld, Name: "charge", Session: "s", Worker: "w7",
		Until: history.At(time.Date(2026, 1, 1, 12, 0, 20, 0, time.UTC)),
	}
	for zone, want := range map[*time.Location]string{
		time.UTC:                       `activity "charge": session s is held by worker w7 until 2026-01-01T12:00:20Z`,
		time.FixedZone("east", 3600*2): `activity "charge": session s is held by worker w7 until 2026-01-01T14:00:20+02:00`,
	} {
		if got := w.Say(zone); got != want {
			t.Errorf("in %s: %q, want %q", zone, got, want)
		}
	}
	w.Name, w.Worker = "[odd|{worker}]", "{session}"
	if got := w.Say(
		time.UTC,
	); got != `activity "[odd|{worker}]": session s is held by worker {session} until 2026-01-01T12:00:20Z` {
		t.Errorf("a name is taken for a part of the text: %q", got)
	}
}

// The guide's table of reasons is the list.
func TestTheGuideHasEveryReason(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/debug.md")
	if err != nil {
		t.Fatal(err)
	}
	needs := map[protocol.WaitPatience]string{
		protocol.PatienceNone: "yes", protocol.PatienceShort: "after 5 minutes", protocol.PatienceEndless: "no",
		protocol.PatienceBrief: "after 30 seconds",
	}
	failing := []protocol.WaitReason{protocol.WaitRunning, protocol.WaitBackoff, protocol.WaitChild}
	for _, r := range protocol.WaitRules {
		_, row, found := strings.Cut(string(guide), "| `"+string(r.Reason)+"` |")
		if !found {
			t.Errorf("the guide says nothing of %s", r.Reason)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		text := strings.TrimSpace(strings.Split(row, "|")[2])
		fails := slices.Contains(failing, r.Reason) && strings.HasPrefix(text, "after 10 failures")
		if text != needs[r.Patience] && !fails {
			t.Errorf("the guide says of %s that it needs somebody: %q; want %q", r.Reason, text, needs[r.Patience])
		}
	}
}
