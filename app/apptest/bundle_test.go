package apptest_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// lived creates a closed run of a workflow that used every feature.
func (c caller) lived(id string) (run string) {
	c.t.Helper()
	run = c.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+
		`","workflow_type":"t","task_queue":"q","input":["é😀",1.5],
		"memo":{"m":1},"headers":{"tenant":"é"},"search_attributes":{"K":"`+id+`"},"business_key":"b"}`).text("run_id")
	c.want(
		201, "POST", "/api/worker/register",
		`{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"],"supported_activity_types":["a"]}`,
	)
	turn := func(commands string) {
		c.t.Helper()
		task := c.want(
			200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
		).body["task"].(map[string]any)
		c.want(
			200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
			`{"lease_owner":"w","workflow_task_attempt":1,"commands":`+commands+`}`,
		)
	}
	turn(
		`[{"type":"upsert_search_attributes","attributes":{"N":7}},{"type":"schedule_activity","activity_type":"a","queue":"q"}]`,
	)
	c.want(202, "POST", "/api/workflows/"+id+"/signal/s", `{"input":[1]}`)
	act := c.want(
		200, "POST", "/api/worker/activity-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
	).body["task"].(map[string]any)
	c.want(200, "POST", "/api/worker/activity-tasks/"+act["task_id"].(string)+"/complete",
		`{"lease_owner":"w","activity_attempt_id":"`+act["activity_attempt_id"].(string)+`","result":"done"}`)
	turn(`[{"type":"complete_workflow"}]`)
	return run
}

func (c caller) bundle(id, run string) (raw string, events any) {
	c.t.Helper()
	got := c.want(200, "GET", "/api/workflows/"+id+"/runs/"+run+"/history/export", "")
	return got.raw, got.body["history_events"]
}

func TestAClosedRunIsExportedAndImported(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		home := caller{t, apptest.Start(t, apptest.Options{}), "default"}
		run := home.lived("f")
		raw, events := home.bundle("f", run)
		shown := home.want(200, "GET", "/api/workflows/f/runs/"+run, "")

		schema := jsonschema.NewCompiler()
		schema.AssertFormat()
		judge, err := schema.Compile("../../docs/schemas/history-export-bundle.schema.json")
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := judge.Validate(document); err != nil {
			t.Error(err)
		}
		delete(document.(map[string]any), "dedupe_key")
		if judge.Validate(document) == nil {
			t.Error("the schema takes anything")
		}

		away := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		const path = "/api/workflows/import/bundle"
		refused := func(status int, reason, body string) {
			t.Helper()
			if got := away.want(status, "POST", path, body); got.text("reason") != reason || got.body["control_plane"] == nil {
				t.Errorf("%s, want %s", got.raw, reason)
			}
			if got := away.ask("GET", "/api/workflows/f", ""); got.status != 404 {
				t.Errorf("a refused import left something: %s", got.raw)
			}
		}
		refused(422, "validation_failed", `{}`)
		refused(422, "invalid_history_bundle", strings.Replace(raw, `"schema_version":1`, `"schema_version":2`, 1))
		refused(422, "history_bundle_integrity_failed", strings.Replace(raw, `"signal_name":"s"`, `"signal_name":"x"`, 1))
		refused(422, "history_bundle_integrity_failed", strings.Replace(raw, `"sha256"`, `"md5"`, 1))

		if got := away.want(201, "POST", path, raw); got.text("outcome") != "imported" || got.text("run_id") != run ||
			got.text("status") != "completed" {
			t.Error(got.raw)
		}
		if got := away.want(200, "POST", path, raw); got.text("outcome") != "import_not_needed" {
			t.Error(got.raw)
		}
		if _, second := away.bundle("f", run); !reflect.DeepEqual(second, events) {
			t.Errorf("its events are %v, want %v", second, events)
		}
		there := away.want(200, "GET", "/api/workflows/f", "")
		for _, member := range []string{
			"status", "input", "memo", "search_attributes", "started_at", "closed_at", "business_key", "history_length",
			"run_number", "is_current_run",
		} {
			if !reflect.DeepEqual(there.body[member], shown.body[member]) {
				t.Errorf("%s is %v, want %v", member, there.body[member], shown.body[member])
			}
		}
		if got := fmt.Sprint(away.found(`N = 7 AND K = 'f' AND Status = 'completed'`, 10)); got != "[f]" {
			t.Errorf("filters find %s", got)
		}
		if got := away.want(
			409, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t"}`,
		); got.text("reason") != "duplicate_not_allowed" {
			t.Error(got.raw)
		}
		// A workflow ID and a run ID are unique, also for imports.
		away.want(201, "POST", "/api/workflows", `{"workflow_id":"g","workflow_type":"t"}`)
		other, _ := home.bundle("g", home.lived("g"))
		if got := away.want(409, "POST", path, other); got.text("reason") != "instance_already_started" {
			t.Error(got.raw)
		}
		away.want(201, "POST", "/api/namespaces", `{"name":"blue"}`)
		if got := (caller{t, away.app, "blue"}).want(409, "POST", path, raw); got.text("reason") != "run_already_exists" {
			t.Error(got.raw)
		}
		open := home.want(201, "POST", "/api/workflows", `{"workflow_id":"open","workflow_type":"t"}`).text("run_id")
		half, _ := home.bundle("open", open)
		if got := away.want(409, "POST", path, half); got.text("reason") != "history_incomplete" {
			t.Error(got.raw)
		}
	})
}

// W10: a long history pages, compresses, exports, is verified and replayed by the published SDK, and imports as it was.
func TestAHistoryOf10000EventsPagesCompressesExportsReplaysAndImports(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		run := c.want(
			201, "POST", "/api/workflows", `{"workflow_id":"long","workflow_type":"t","task_queue":"q","input":[10,999],"headers":{"tenant":"acme"}}`,
		).text("run_id")
		c.want(
			201, "POST", "/api/worker/register",
			`{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"],"supported_activity_types":["add"]}`,
		)
		encoded := func(v any) string {
			t.Helper()
			p, err := payload.Encode(v)
			if err != nil {
				t.Fatal(err)
			}
			return `{"codec":"avro","blob":"` + p.Blob + `"}`
		}
		noted := strings.Repeat(`{"type":"record_side_effect","result":`+encoded("some text")+`},`, 999)
		decide := func(commands string) {
			t.Helper()
			task := c.want(
				200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
			).body["task"].(map[string]any)
			c.want(200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
				`{"lease_owner":"w","workflow_task_attempt":1,"commands":[`+commands+`]}`)
		}
		for i := range 10 {
			decide(noted + `{"type":"schedule_activity","activity_type":"add","arguments":` +
				encoded([]any{i, 1}) + `,"headers":{"tenant":"acme"}}`)
			task := c.want(
				200, "POST", "/api/worker/activity-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
			).body["task"].(map[string]any)
			c.want(200, "POST", "/api/worker/activity-tasks/"+task["task_id"].(string)+"/complete",
				`{"lease_owner":"w","activity_attempt_id":"`+task["activity_attempt_id"].(string)+`","result":`+encoded(i+1)+`}`)
		}
		decide(`{"type":"complete_workflow","result":` + encoded(10) + `}`)
		path, seen, token := "/api/workflows/long/runs/"+run+"/history", 0, ""
		for {
			got := c.want(200, "GET", path+"?page_size=700&next_page_token="+token, "")
			for _, e := range got.body["events"].([]any) {
				if seen++; e.(map[string]any)["sequence"] != float64(seen) {
					t.Fatalf("event %v where %d is due", e, seen)
				}
			}
			if token = got.text("next_page_token"); token == "" {
				break
			}
		}
		if length := c.want(200, "GET", "/api/workflows/long", "").body["history_length"]; seen < 10_000 ||
			length != float64(seen) {
			t.Fatalf("%d events of %v", seen, length)
		}
		raw, events := c.bundle("long", run)
		if packed := c.compressed(path + "/export"); packed > len(raw)/5 {
			t.Errorf("an export of %d bytes is compressed to %d", len(raw), packed)
		}
		verified(t, raw)
		if next := replayed(t, raw); next != `[["CompleteWorkflow", 10]]` {
			t.Errorf("replayed, its code does %s next", next)
		}
		away := caller{t, apptest.Start(t, apptest.Options{}), "default"}
		away.want(201, "POST", "/api/workflows/import/bundle", raw)
		if _, second := away.bundle("long", run); !reflect.DeepEqual(second, events) {
			t.Error("its history is another")
		}
	})
}

// compressed returns the number of transferred bytes of a response with gzip.
func (c caller) compressed(path string) int {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), "GET", c.app.URL()+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set(httpapi.VersionHeader, "2")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := gzip.NewReader(strings.NewReader(string(raw))); err != nil {
		c.t.Errorf("%s is not compressed: %v", path, err)
	}
	return len(raw)
}

// verified runs the published SDK's verifier on a bundle.
func verified(t *testing.T, raw string) {
	t.Helper()
	ran(t, raw, "-m", "durable_workflow.history_bundle_verify")
}

// replayed runs the published SDK's replayer on a bundle, and returns the next commands of the workflow's code.
func replayed(t *testing.T, raw string) string {
	t.Helper()
	return ran(t, raw, filepath.Join(pythonDir, "replay.py"))
}

// ran runs a program of the published SDK that reads a bundle, and returns its output.
func ran(t *testing.T, raw string, program ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.json")
	if err := os.WriteFile(file, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python(t), append(program, file)...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%.2000s", program[len(program)-1], err, out)
	}
	return strings.TrimSpace(string(out))
}

// The runs of one workflow id are imported one by one, from either end; the last stays the current one.
func TestAChainOfRunsIsImportedFromEitherEnd(t *testing.T) {
	home := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	first := home.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q"}`).
		text("run_id")
	home.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"]}`)
	runs, bundles := []string{first}, []string{}
	for i, command := range []string{
		`{"type":"continue_as_new"}`, `{"type":"continue_as_new"}`, `{"type":"complete_workflow"}`,
	} {
		task := home.want(
			200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
		).body["task"].(map[string]any)
		home.want(
			200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
			`{"lease_owner":"w","workflow_task_attempt":1,"commands":[`+command+`]}`,
		)
		if i < 2 {
			runs = append(runs, home.want(200, "GET", "/api/workflows/f", "").text("run_id"))
		}
	}
	for _, run := range runs {
		raw, _ := home.bundle("f", run)
		bundles = append(bundles, raw)
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1}} {
		away := caller{t, apptest.Start(t, apptest.Options{}), "default"}
		for _, i := range order {
			if got := away.want(
				201, "POST", "/api/workflows/import/bundle", bundles[i],
			); got.body["run_number"] != float64(i+1) {
				t.Error(got.raw)
			}
			if got := away.want(200, "GET", "/api/workflows/f", ""); i == 0 &&
				(got.text("run_id") != runs[0] || got.text("closed_reason") != "continued") {
				t.Errorf("of the first run alone: %s", got.raw)
			}
		}
		if got := away.want(200, "GET", "/api/workflows/f", ""); got.text("run_id") != runs[2] ||
			got.body["run_count"] != 3.0 || got.text("status") != "completed" {
			t.Errorf("imported as %v: %s", order, got.raw)
		}
	}
	away := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	away.want(201, "POST", "/api/workflows/import/bundle", bundles[0])
	away.want(409, "POST", "/api/workflows/import/bundle", bundles[2]) // not the run that it continued as
}

// The history of a run contains the signals that it inherits, which are stored once for all runs of its chain. Its
// export contains them too, and an import stores them with the run.
func TestRunsWithInheritedSignalsAreExportedAndImported(t *testing.T) {
	for kind, database := range map[string]func() string{
		"sqlite": func() string { return "" }, "postgres": func() string { return apptest.Postgres(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			home := caller{t, apptest.Start(t, apptest.Options{Database: database()}), "default"}
			away := caller{t, apptest.Start(t, apptest.Options{Database: database()}), "default"}
			const signals = 40
			run := home.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q"}`).
				text("run_id")
			home.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"]}`)
			for i := range signals {
				home.want(202, "POST", "/api/workflows/f/signal/s", fmt.Sprintf(`{"input":[%d]}`, i))
			}
			var runs []string
			for _, command := range []string{
				`{"type":"continue_as_new"}`, `{"type":"continue_as_new"}`, `{"type":"complete_workflow"}`,
			} {
				task := home.want(
					200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
				).body["task"].(map[string]any)
				home.want(
					200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
					`{"lease_owner":"w","workflow_task_attempt":1,"commands":[`+command+`]}`,
				)
				runs = append(runs, run)
				run = home.want(200, "GET", "/api/workflows/f", "").text("run_id")
			}
			for i, run := range runs {
				raw, events := home.bundle("f", run)
				inherited := 0
				for _, e := range events.([]any) {
					if e.(map[string]any)["type"] == "SignalReceived" {
						inherited++
					}
				}
				if inherited != signals {
					t.Errorf("the export of run %d contains %d signals, want %d", i+1, inherited, signals)
				}
				away.want(201, "POST", "/api/workflows/import/bundle", raw)
				if _, got := away.bundle("f", run); !reflect.DeepEqual(got, events) {
					t.Errorf("run %d: imported as %v, want %v", i+1, got, events)
				}
			}
		})
	}
}
