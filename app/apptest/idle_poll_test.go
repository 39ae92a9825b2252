package apptest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// held starts n polls of a kind, by that many workers in turn, and returns once all of them wait.
func held(t *testing.T, a *apptest.App, kind string, workers, n int) {
	t.Helper()
	c := caller{t, a, ""}
	before := a.Broker().Dispatch().Counts().Waiting
	for i := range workers {
		register(c, fmt.Sprintf("%s-%d", kind, i), "")
	}
	for i := range n {
		w := hand{c, fmt.Sprintf("%s-%d", kind, i%workers)}
		go func() { // the end of the app ends this poll, with or without a response
			r, err := http.NewRequest("POST", a.URL()+"/api/worker/"+kind+"-tasks/poll",
				strings.NewReader(`{"worker_id":"`+w.id+`","task_queue":"`+handQueue+`","timeout_seconds":60}`))
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(workerapi.VersionHeader, "1.20")
			if res, err := http.DefaultClient.Do(r); err == nil {
				res.Body.Close()
			}
		}()
	}
	waiting(t, a, before+n)
}

// W7: a thousand polls that wait for work send no statement, however long they wait, on either database.
func TestAThousandIdlePollsSendNoStatement(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		for _, kind := range []string{"workflow", "activity"} {
			held(t, a, kind, 20, 500)
		}
		before := a.Broker().Store().Stats()
		time.Sleep(500 * time.Millisecond) // time in which a response could be sent; the test asserts no durations
		if after := a.Broker().Store().Stats(); after.Statements != before.Statements || after.Reads != before.Reads ||
			after.Commits != before.Commits {
			t.Errorf("1000 idle polls: %+v, then %+v", before, after)
		}
		a.Stop() // which responds to them
	})
}

// W7: among the held polls of a queue, the oldest receives the next task.
func TestHeldPollsAreServedInTheirOrder(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	const n = 40
	type got struct {
		place int
		task  handTask
	}
	answers := make(chan got, n)
	for i := range n {
		w := register(c, fmt.Sprintf("w-%d", i), "")
		go func() { answers <- got{i, taskOf(t, w.pollWith("workflow", `,"timeout_seconds":60`))} }()
		waiting(t, a, i+1)
	}
	var took time.Duration
	for i := range n {
		began := time.Now()
		c.start(fmt.Sprintf("in-order-%d", i))
		g := <-answers
		took += time.Since(began)
		if g.place != i || g.task.text("workflow_id") != fmt.Sprintf("in-order-%d", i) {
			t.Fatalf("start %d went to the poll at place %d: %v", i, g.place, g.task["workflow_id"])
		}
	}
	t.Logf("from the start of a run to the answer of a held poll: %s on average", (took / n).Round(10*time.Microsecond))
}
