package bench

import (
	"strings"
	"testing"
)

// The processor times of the caller, of the app and of the database server are measured separately.
func TestStartAndWaitMeasuresEachPartSeparately(t *testing.T) {
	onStores(t, func(t *testing.T, kind string, n *node) {
		const ops = 300
		for _, workflow := range []string{"one", "five"} {
			for _, separate := range []bool{false, true} {
				s, err := n.startAndWait(t.Context(), call{Workflow: workflow, Times: ops, Separate: separate})
				if err != nil {
					t.Fatal(err)
				}
				if len(s.each) != ops || s.client <= 0 || s.used <= 0 || s.elapsed <= 0 ||
					(s.database > 0) != (kind == "postgres") {
					t.Errorf("%s: client %s, app %s, database %s", workflow, s.client, s.used, s.database)
				}
			}
		}
	})
}

// A name of a process may contain parentheses and spaces.
func TestProcessorTimeIsReadFromProc(t *testing.T) {
	pid, parent, used, err := processorTime("42 (a) b (c) S 7 " + strings.Repeat("0 ", 9) + "1 2 3 4 20 0\n")
	if err != nil || pid != 42 || parent != 7 || used != 10*clockTick {
		t.Errorf("got %d, %d, %s, %v", pid, parent, used, err)
	}
	for _, invalid := range []string{"", "42 (a) S", "42 (a) S x " + strings.Repeat("0 ", 20)} {
		if _, _, _, err := processorTime(invalid); err == nil {
			t.Errorf("%q was read", invalid)
		}
	}
}
