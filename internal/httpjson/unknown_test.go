package httpjson_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestUnknownMembersAreFoundAtEveryDepthButNotInPayloads(t *testing.T) {
	for _, c := range []struct {
		name, body string
		in         any
		want       []string // path and suggestion
	}{
		{"none", `{"workflow_type":"a","memo":{"x":1},"input":[{"y":2}]}`, &protocol.StartRequest{}, nil},
		{"misspelled", `{"workflow_type":"a","tsak_queue":"q"}`, &protocol.StartRequest{}, []string{"tsak_queue task_queue"}},
		{"no near name", `{"zzzzzzzz":null}`, &protocol.StartRequest{}, []string{"zzzzzzzz "}},
		{"other case", `{"Workflow_Type":"a"}`, &protocol.StartRequest{}, nil},
		{"escaped", `{"workflow\u005ftype":"a","\u0078":1}`, &protocol.StartRequest{}, []string{"x "}},
		{
			"nested", `{"action":{"workflow_typ":"a","input":[{"b":1}]}}`, &protocol.ScheduleRequest{},
			[]string{"action.workflow_typ workflow_type"},
		},
		{
			"below a list", `{"commands":[],"items":[{"task_id":"a"},{"commands":[{"typ":"x"}],"failure":{"message":"m","details":{"q":1}}}]}`,
			&protocol.CompleteRequest{},
			[]string{"commands ", "items.1.commands.0.typ type"},
		},
		{"below an unknown one", `{"other":{"more":{"x":1}}}`, &protocol.StartRequest{}, []string{"other "}},
		{"an empty name", `{"":1}`, &protocol.StartRequest{}, []string{" "}},
		{"nothing", ``, &protocol.StartRequest{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			unknown, err := httpjson.DecodeReporting([]byte(c.body), c.in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range unknown.Members {
				got = append(got, m.Path+" "+m.Near)
			}
			if !reflect.DeepEqual(got, c.want) || unknown.Count != len(c.want) {
				t.Errorf("got %d: %q, want %q", unknown.Count, got, c.want)
			}
			if refused := protocol.ReasonOf(unknown.Refusal()) == protocol.ReasonValidation; refused != (len(c.want) > 0) {
				t.Errorf("strictly: %v", unknown.Refusal())
			}
		})
	}
}

// A body with many unknown members must not cause a response with many warnings.
func TestOnlyTheFirstUnknownMembersAreNamed(t *testing.T) {
	var body strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&body, `,"%s%d":1`, strings.Repeat("k", 500), i)
	}
	var in protocol.StartRequest
	unknown, err := httpjson.DecodeReporting([]byte(`{"workflow_type":"a"`+body.String()+`}`), &in)
	if err != nil || in.WorkflowType != "a" {
		t.Fatal(in, err)
	}
	if unknown.Count != 10_000 || len(unknown.Members) != 20 || len(unknown.Members[0].Path) > 300 {
		t.Errorf("%d unknown members, %d are named, the first %.300s", unknown.Count, len(unknown.Members), unknown.Members[0].Path)
	}
	unknown.Add(unknown)
	if unknown.Count != 20_000 || len(unknown.Members) != 20 {
		t.Errorf("twice: %d unknown members, %d are named", unknown.Count, len(unknown.Members))
	}
}

// Inspect runs for every request. For a body without unknown members, its allocations must not grow with the body.
func TestInspectingABodyAllocatesNothingPerMember(t *testing.T) {
	counts := map[int]float64{}
	for _, items := range []int{1, 100} {
		item := `{"task_id":"a","lease_owner":"w","commands":[{"type":"schedule_activity","retry_policy":{"max_attempts":3}}]}`
		body := []byte(`{"items":[` + strings.Repeat(item+",", items-1) + item + `]}`)
		var in protocol.CompleteRequest
		counts[items] = testing.AllocsPerRun(100, func() {
			if unknown, err := httpjson.Inspect(body, &in); err != nil || unknown.Count > 0 {
				t.Fatal(unknown, err)
			}
		})
	}
	if counts[100] > counts[1] || counts[1] > 2 {
		t.Errorf("allocations by number of items: %v", counts)
	}
}
