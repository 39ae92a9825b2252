package apptest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// The SDK's worker at one app validates updates and executes queries that the SDK's client sends to another app.
func TestPythonAnswersQueriesSentToAnotherApp(t *testing.T) {
	t.Parallel()
	python(t)
	database := apptest.Postgres(t)
	a, b := startPython(t, database, ""), startPython(t, database, "")
	w := workThrough(t, a, b.URL(), "py-1", "50")
	cases(t, a, "a_validator_decides_what_is_accepted", "updates", "queries", "an_unknown_update_is_refused")
	w.stop()
}
