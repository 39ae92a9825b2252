package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

func TestAnUpdateWithARemovedMemberIsRefusedWithItsSuccessor(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	run := c.start("a")
	for _, path := range []string{"/api/workflows/a/update/u", "/api/workflows/a/runs/" + run + "/update/u"} {
		for _, value := range []string{`"completed"`, "null", "1"} {
			got := c.want(422, "POST", path, `{"wait_policy":`+value+`}`)
			if !strings.Contains(got.raw, `"wait_policy"`) || !strings.Contains(got.text("message"), "use wait_for") {
				t.Errorf("%s with %s: %s", path, value, got.raw)
			}
		}
	}
}
