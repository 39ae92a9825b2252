package apptest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// A token is revoked at one app while another app leases a task for the held poll of the token's worker. Either the
// worker receives the task, or the poll fails with 401 and the next worker receives the task at once.
func TestATaskOfARevokedTokensPollIsNotLost(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		withTokens := func(o *app.Options) { o.NoAuth, o.Token = false, admin }
		here, there := apptest.Two(t, apptest.Options{Database: database, Change: withTokens})
		c := client{t: t, url: here.URL()}.as(admin)
		next := client{t: t, url: there.URL()}.as(admin)
		outcomes := map[string]int{}
		for i := range 24 {
			made := c.want(201, "POST", "/tokens", `{"name":"w","roles":["worker"]}`)
			w := client{t: t, url: there.URL()}.as(made.text("token"))
			id, queue := fmt.Sprint("w-", i), fmt.Sprint("q-", i)
			for workerID, x := range map[string]client{id: w, id + "-next": next} {
				x.want(
					201, "POST", "/api/worker/register", fmt.Sprintf(
						`{"worker_id":%q,"task_queue":%q,"runtime":"external","supported_workflow_types":["flow"]}`, workerID, queue,
					),
				)
			}
			polled := make(chan response, 1)
			go func() {
				polled <- w.call("POST", "/api/worker/workflow-tasks/poll", fmt.Sprintf(
					`{"worker_id":%q,"task_queue":%q,"timeout_seconds":60}`, id, queue,
				))
			}()
			time.Sleep(20 * time.Millisecond) // the poll is open
			var race sync.WaitGroup
			race.Go(func() {
				time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
				c.want(200, "DELETE", "/tokens/"+made.text("id"), "")
			})
			race.Go(func() {
				time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
				c.want(201, "POST", "/workflows", fmt.Sprintf(
					`{"workflow_id":%q,"workflow_type":"flow","task_queue":%q}`, id, queue,
				))
			})
			race.Wait()
			got := <-polled
			has := strings.Contains(got.raw, `"task_id"`)
			switch {
			case got.status == 200 && has:
				outcomes["had"]++
				continue
			case got.status != 401:
				t.Errorf("the poll: %d %s", got.status, got.raw)
			}
			after := next.want(200, "POST", "/api/worker/workflow-tasks/poll", fmt.Sprintf(
				`{"worker_id":%q,"task_queue":%q,"timeout_seconds":20}`, id+"-next", queue,
			))
			if after.body["task"] == nil {
				outcomes["lost"]++
				t.Errorf("round %d: the task is nobody's: %s", i, c.want(200, "GET", "/workflows/"+id, "").raw)
				continue
			}
			outcomes["refused"]++
		}
		t.Logf("%v", outcomes)
	})
}
