package cli_test

import (
	"strings"
	"testing"
)

// Commands for people print the beginnings of large values with their sizes, and whole values on request. Programs get
// whole values.
func TestLargeValuesArePrintedInPart(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	name := strings.Repeat("Ada ", 5000)
	if got := s.try(
		0, "", "workflow", "start", "tour.greeting", "--id", "large", "--input", `["`+name+`"]`, "--wait",
	); !strings.Contains(got, name) {
		t.Fatalf("the result has %d bytes", len(got))
	}
	for _, verb := range [][]string{
		{"describe", "large"}, {"history", "large"}, {"history", "large", "--follow"}, {"describe", "large", "--follow"},
	} {
		args := append([]string{"workflow"}, verb...)
		out := s.try(0, "… (19.5 KiB; --full prints the value)", args...)
		if strings.Contains(out, name) || !strings.Contains(out, name[:4000]) {
			t.Errorf("%v prints %d bytes", args, len(out))
		}
		for _, flag := range []string{"--full", "--json"} {
			if out := s.try(0, name, append(args, flag)...); strings.Contains(out, "--full prints") {
				t.Errorf("%v %s prints a part", args, flag)
			}
		}
	}
	s.try(0, "large", "workflow", "list")
}
