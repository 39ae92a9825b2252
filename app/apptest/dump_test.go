package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

func TestDumpDiffListsTheChangesOfAWrite(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		before := a.Dump()
		if diff := before.Diff(a.Dump()); diff != "" {
			t.Fatalf("nothing was written:\n%s", diff)
		}
		caller{t, a, ""}.want(201, "POST", "/api/workflows", `{"workflow_type":"x","workflow_id":"dumped-1"}`)
		diff := before.Diff(a.Dump())
		for _, table := range []string{"workflows", "runs", "events", "tasks"} {
			if !strings.Contains(diff, "+ "+table+" ") {
				t.Errorf("a start shows no new row in %s:\n%s", table, diff)
			}
		}
		if strings.Contains(before.Diff(a.Dump(), "runs"), " runs ") {
			t.Error("a table that was left out is in the difference")
		}
		if back := a.Dump().Diff(before); strings.Contains(back, "+ runs ") || !strings.Contains(back, "- runs ") {
			t.Errorf("the other way round:\n%s", back)
		}
	})
}
