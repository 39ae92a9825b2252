package apptest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// fuzzShare is the part of all operations that one run of the test requests. Generating the requests, some 12,000 for
// all operations, takes nearly all of its time; the app needs a tenth of it.
const fuzzShare = 12

// Requests generated from the published API description, valid and invalid ones, get only responses that the
// description has, and never a 5xx. Each run tests another twelfth of the operations; SOJOURN_TEST_FUZZ_SEED repeats a
// run. SOJOURN_TEST_FUZZ sets the number of examples of all operations, in every role.
func TestRequestsMadeOfTheDescriptionGetDescribedAnswers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	python := pythonWith(t, "fuzz.txt")
	seed := uint64(time.Now().Unix())
	if text := os.Getenv("SOJOURN_TEST_FUZZ_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	examples, roles := 1, []auth.Role{""}
	if n, err := strconv.Atoi(os.Getenv("SOJOURN_TEST_FUZZ")); err == nil && n > 0 {
		examples, roles = n, append(roles, auth.Roles...)
	}
	for _, role := range roles {
		name := string(role)
		if name == "" {
			name = "every role"
		}
		t.Run(name, func(t *testing.T) {
			a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, pythonToken }})
			c := client{t: t, url: a.URL()}.as(pythonToken)
			known := populate(t, c)
			token := pythonToken
			if role != "" {
				token = c.want(201, "POST", "/tokens", fmt.Sprintf(`{"name":"fuzz","roles":[%q]}`, role)).text("token")
			}
			fuzz(t, python, a.URL(), token, known, examples, seed)
			c.want(200, "GET", "/ready", "")
		})
	}
}

// populate creates one object of every kind in an app and returns the IDs, by their names in requests.
func populate(t *testing.T, c client) map[string][]string {
	t.Helper()
	c.want(201, "POST", "/worker/register",
		`{"worker_id":"w1","task_queue":"q","runtime":"fuzz","supported_workflow_types":["wf"],`+
			`"supported_activity_types":["act"],"capabilities":["worker_sessions"],"max_concurrent_worker_sessions":5}`)
	ended := ""
	for _, id := range []string{"open", "closed"} {
		ended = c.want(
			201, "POST", "/workflows", `{"workflow_id":"`+id+`","workflow_type":"wf","task_queue":"q","input":[1]}`,
		).text("run_id")
	}
	c.want(200, "POST", "/workflows/closed/terminate", `{}`)
	c.want(
		201, "POST", "/schedules",
		`{"schedule_id":"s1","spec":{"cron_expressions":["@yearly"]},"action":{"workflow_type":"wf","task_queue":"q"}}`,
	)
	c.want(201, "POST", "/worker/sessions", `{"worker_id":"w1","session_id":"sn1"}`)
	c.want(201, "POST", "/namespaces", `{"name":"ns1"}`)
	task, _ := c.want(
		200, "POST", "/worker/workflow-tasks/poll", `{"worker_id":"w1","task_queue":"q","timeout_seconds":20}`,
	).body["task"].(map[string]any)
	id, _ := task["task_id"].(string)
	run, _ := task["run_id"].(string)
	args, _ := json.Marshal(task["arguments"])
	c.want(200, "POST", "/worker/workflow-tasks/"+id+
		"/complete", fmt.Sprintf(`{"lease_owner":"w1","workflow_task_attempt":1,"commands":[`+
		`{"type":"schedule_activity","activity_type":"act","queue":"q","arguments":%s},{"type":"schedule_activity","activity_type":"act","queue":"q","arguments":%s},`+
		`{"type":"open_signal_wait","signal_name":"sig"}]}`, args, args))
	act, _ := c.want(
		200, "POST", "/worker/activity-tasks/poll", `{"worker_id":"w1","task_queue":"q","timeout_seconds":20}`,
	).body["task"].(map[string]any)
	activity, _ := act["task_id"].(string)
	attempt, _ := act["activity_attempt_id"].(string)
	return map[string][]string{
		"workflow": {"open", "closed"}, "run": {run}, "worker": {"w1"}, "worker_id": {"w1"}, "lease_owner": {"w1"},
		"session":    {"sn1"},
		"session_id": {"sn1"}, "schedule": {"s1"}, "namespace": {"default", "ns1"}, "task": {activity, id},
		"task_id":             {activity, id},
		"activity_attempt_id": {attempt}, "task_queue": {"q"}, "queue": {"q"}, "name": {"sig"}, "workflow_type": {"wf"},
		"kind":  {"activity", "workflow"},
		"ended": {"closed", ended},
	}
}

// repeated are operations that read the same bodies as others.
var repeated = regexp.MustCompile(
	"^(signal|update|query|cancel|terminate|request_cancellation|repair|archive|debug_workflow)_run$|^complete_tasks$")

var caseID = regexp.MustCompile(`(?m)^.{400}.*$`)

func fuzz(t *testing.T, python, url, token string, known map[string][]string, examples int, seed uint64) {
	t.Helper()
	hooks, err := filepath.Abs(filepath.Join(pythonDir, "fuzz.py"))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "schemathesis.cli", "run", url+
		"/api/openapi.json", "--max-examples", strconv.Itoa(examples), "--phases", "coverage,fuzzing",
		"--checks",
		"not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance",
		"--header", "Authorization: Bearer "+token, "--seed", strconv.FormatUint(seed%math.MaxUint32, 10),
		"--no-color", "--generation-database", "none",
		"--suppress-health-check", "all",
		"--request-timeout", "60", "--continue-on-failure", "--warnings", "off")
	// a command on a named run is read like one on the current run, and outcomes in a batch like single ones
	if examples == 1 {
		var left []string
		for i, rt := range append(httpapi.Routes(), workerapi.Routes()...) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			if random.IntN(fuzzShare) > 0 || repeated.MatchString(rt.Operation) {
				left = append(left, rt.Operation)
			}
		}
		cmd.Args = append(cmd.Args, "--exclude-operation-id-regex", "^("+strings.Join(left, "|")+")$")
		t.Logf("SOJOURN_TEST_FUZZ_SEED=%d", seed)
	}
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "SCHEMATHESIS_HOOKS="+hooks, "FUZZ_KNOWN="+string(ids), "PYTHONDONTWRITEBYTECODE=1",
		"FUZZ_SEED="+strconv.FormatUint(seed, 10))
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	text := caseID.ReplaceAllStringFunc(out.String(), func(line string) string { return line[:400] + " …" })
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	if _, sum, ok := strings.Cut(text, "= SUMMARY ="); ok {
		t.Log(sum)
	}
}
