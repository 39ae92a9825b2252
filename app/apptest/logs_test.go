package apptest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// aStep starts a run and leases its first activity to a worker.
func aStep(c caller, h hand, workflow string) handTask {
	c.t.Helper()
	c.start(workflow)
	h.decide(h.poll("workflow"), step)
	return h.poll("activity")
}

// logItem returns a chunk of lines of an attempt.
func logItem(t handTask, owner string, part int, texts ...string) string {
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = fmt.Sprintf(`{"level":"info","source":"stdout","text":%q}`, text)
	}
	return fmt.Sprintf(`{"task_id":%q,"lease_owner":%q,"activity_attempt_id":%q,"part":%d,"lines":[%s]}`,
		t.text("task_id"), owner, t.text("activity_attempt_id"), part, strings.Join(lines, ","))
}

// logs uploads chunks and returns the result of each: recorded, full, or the reason of the refusal.
func (h hand) logs(items ...string) string {
	h.t.Helper()
	s := h.want(200, "POST", "/api/worker/tasks/logs", `{"items":[`+strings.Join(items, ",")+`]}`)
	var a protocol.LogsResponse
	if err := json.Unmarshal([]byte(s.raw), &a); err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for _, r := range a.Items {
		switch {
		case r.Recorded:
			all = append(all, "recorded")
		case r.Reason == "":
			all = append(all, "full")
		default:
			all = append(all, string(r.Reason))
		}
	}
	return strings.Join(all, " ")
}

// kept reads the lines of a task.
func (c caller) kept(task, query string) (a protocol.ActivityLogs, texts string) {
	c.t.Helper()
	s := c.want(200, "GET", "/api/tasks/"+task+"/logs"+query, "")
	if err := json.Unmarshal([]byte(s.raw), &a); err != nil {
		c.t.Fatal(err)
	}
	for _, l := range a.Lines {
		if l.LeftOut > 0 {
			texts += fmt.Sprintf("[%d left out]", l.LeftOut)
		}
		texts += l.Text + ";"
	}
	return a, texts
}

// The app accepts log lines only from the worker that leased the attempt, through any app, once per chunk number. Lines
// of an outcome are stored with the outcome.
func TestLinesOfAnAttemptComeFromItsHolder(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, other := apptest.Two(t, apptest.Options{Database: database})
		c, through := caller{t, a, ""}, caller{t, other, ""}
		h := register(c, "w1", "")
		job := aStep(c, h, "f")
		task := job.text("task_id")
		if got, _ := c.kept(task, ""); !got.Running || !got.Open || len(got.Lines)+len(got.Attempts) != 1 {
			t.Errorf("before the first line: %+v", got)
		}
		h.logs(logItem(job, "w1", 1, "one", "two"))
		elsewhere := hand{through, "w1"}
		if got := elsewhere.logs(logItem(job, "w1", 1, "again"), logItem(job, "w1", 2, "three")); got != "recorded recorded" {
			t.Errorf("through another app: %s", got)
		}
		first, texts := through.kept(task, "")
		if texts != "one;two;three;" || first.Next != 2 || !first.Running {
			t.Errorf("while it runs: %s %+v", texts, first)
		}
		foreign := register(c, "w2", "")
		never := handTask{"task_id": task, "activity_attempt_id": task + "-7"}
		unchanged(t, a, "a foreign worker", func() {
			for item, want := range map[string]string{
				logItem(job, "w2", 3, "false"):   "lease_owner_mismatch",
				logItem(never, "w1", 1, "false"): "stale_attempt",
				logItem(handTask{"task_id": "none-1", "activity_attempt_id": "none-1-1"}, "w1", 1, "x"): "task_not_found",
			} {
				if got := foreign.logs(item); got != want {
					t.Errorf("got %s, want %s: %s", got, want, item)
				}
			}
			foreign.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(
				`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w2","activity_attempt_id":%q,"lines":[{"part":3,"lines":[{"text":"false"}]}]}]}`,
				task, job.text("activity_attempt_id")))
		})
		h.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w1",
			"activity_attempt_id":%q,"lines":[{"part":2,"lines":[{"text":"three"}]},{"part":3,"lines":[{"text":"four"}]}]}]}`,
			task, job.text("activity_attempt_id")))
		last, texts := through.kept(task, fmt.Sprint("?after=", first.Next))
		if texts != "four;" || last.Running || last.Open || last.More {
			t.Errorf("once it is over, what is new is %s %+v", texts, last)
		}
		if got := h.logs(logItem(job, "w1", 4, "late")); got != "stale_attempt" {
			t.Errorf("when it is over: %s", got)
		}
		c.want(404, "GET", "/api/tasks/"+strings.TrimSuffix(task, "1")+"99/logs", "")
		c.want(404, "GET", "/api/tasks/nothing/logs", "")
		c.want(422, "GET", "/api/tasks/"+task+"/logs?attempt=0", "")
		c.want(200, "POST", "/api/workflows/f/terminate", `{}`)
		if _, texts := c.kept(task, "?attempt=1"); texts != "one;two;three;four;" {
			t.Errorf("of a closed run: %s", texts)
		}
	})
}

// A repeated outcome adds no log lines, neither the same nor others, whether or not its chunks have numbers, at any
// app, and at two apps at the same time.
func TestRepeatedOutcomeStoresItsLogLinesOnce(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, other := apptest.Two(t, apptest.Options{Database: database})
		c, through := caller{t, a, ""}, hand{caller{t, other, ""}, "w1"}
		h := register(c, "w1", "")
		long := strings.Repeat("x", 8<<10) // for these the app reads the stored size first
		for name, chunks := range map[string][3]string{
			"numbered":   {`{"part":2,"lines":[{"text":"last"}]}`, `{"part":3,"lines":[{"text":"more"}]}`, "first;last;"},
			"unnumbered": {`{"lines":[{"text":"last"}]}`, `{"lines":[{"text":"more"}]}`, "first;last;"},
			"long":       {`{"part":2,"lines":[{"text":"` + long + `"}]}`, `{"part":3,"lines":[{"text":"more"}]}`, "first;" + long + ";"},
		} {
			for _, outcome := range []string{`"result":null`, `"failure":{"message":"no","non_retryable":true}`} {
				job := aStep(c, h, name+"-"+outcome[1:7])
				h.logs(logItem(job, "w1", 1, "first"))
				report := func(at hand, chunk string) string {
					return at.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(
						`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w1","activity_attempt_id":%q,%s,"lines":[%s]}]}`,
						job.text("task_id"), job.text("activity_attempt_id"), outcome, chunk,
					)).raw
				}
				var at sync.WaitGroup
				var taken atomic.Int64
				for _, door := range []hand{h, through, h, through} {
					at.Go(func() {
						if strings.Contains(report(door, chunks[0]), `"recorded":true`) {
							taken.Add(1)
						}
					})
				}
				if at.Wait(); taken.Load() != 1 {
					t.Errorf("%s, %s: recorded %d times", name, outcome, taken.Load())
				}
				report(through, chunks[0])
				report(h, chunks[1])
				if _, texts := c.kept(job.text("task_id"), ""); texts != chunks[2] {
					t.Errorf("%s, %s: kept is %.300s", name, outcome, texts)
				}
			}
		}
	})
}

// Each attempt has a log. A request without an attempt number returns the log of the last attempt.
func TestEachAttemptHasItsOwnLines(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	h := register(c, "w1", "")
	c.start("f")
	h.decide(h.poll("workflow"), strings.Replace(step, "}", `,"retry_policy":{"max_attempts":3,"backoff_seconds":[0]}}`, 1))
	job := h.poll("activity")
	task := job.text("task_id")
	h.logs(logItem(job, "w1", 1, "first"))
	h.want(200, "POST", stepPath(job, "fail"), h.stepBody(job, `,"failure":{"message":"no"}`))
	if got, texts := c.kept(task, ""); texts != "first;" || got.Running || !got.Open {
		t.Errorf("between two attempts: %s %+v", texts, got)
	}
	second := h.poll("activity")
	if got, texts := c.kept(task, ""); texts != "" || !got.Running || got.AttemptID != second.text("activity_attempt_id") {
		t.Errorf("of the second attempt, before its first line: %s %+v", texts, got)
	}
	h.logs(logItem(second, "w1", 1, "second"))
	got, texts := c.kept(task, "")
	if texts != "second;" || len(got.Attempts) != 2 || got.Attempts[0].Number != 1 || got.Attempts[1].Number != 2 {
		t.Errorf("of the second attempt: %s %+v", texts, got)
	}
	if got, texts := c.kept(task, "?attempt=1"); texts != "first;" || got.Running {
		t.Errorf("of the first attempt: %s %+v", texts, got)
	}
}

// The log of an attempt never exceeds its limit, and dropped lines are counted.
func TestNoMoreLinesAreKeptThanMayBe(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	h := register(c, "w1", "")
	job := aStep(c, h, "f")
	task := job.text("task_id")
	long := strings.Repeat("x", 10_000) // each is cut to 8 KiB
	var all []string
	for part := 1; part <= 4; part++ {
		all = append(all, h.logs(logItem(job, "w1", part, long, long, long, long, long, long, long, long, long, long)))
	}
	if got := strings.Join(all, " "); got != "recorded recorded recorded recorded" {
		t.Errorf("got %s", got)
	}
	got, texts := c.kept(task, "")
	if !strings.HasSuffix(texts, "[9 left out];") || len(got.Lines) != 32 {
		t.Errorf("%d lines, the end is %q", len(got.Lines), texts[max(0, len(texts)-40):])
	}
	tries := 0
	for part := 5; h.logs(logItem(job, "w1", part, long)) != "full"; part++ {
		if tries++; tries > 200 {
			t.Fatal("it never is full")
		}
	}
	if got, _ := c.kept(task, ""); protocol.LogSize(got.Lines) > protocol.MaxLogBytes+64 {
		t.Errorf("%d bytes are kept", protocol.LogSize(got.Lines))
	}
	if n := len(got.Lines[0].Text); n != protocol.MaxLogText {
		t.Errorf("a line has %d bytes", n)
	}
	flood := `{"text":""}` + strings.Repeat(`,{"text":""}`, 9_999)
	h.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w1",
		"activity_attempt_id":%q,"lines":[{"part":901,"lines":[%s]},{"part":902,"lines":[%s]}]}]}`,
		task, job.text("activity_attempt_id"), flood, flood))
	if got, _ := c.kept(task, "?after=900"); len(got.Lines) > 0 {
		t.Errorf("of lines that came with the outcome of a full attempt %d are kept", len(got.Lines))
	}
	// lines that are sent only with the outcome have the same limit as lines that are sent before it
	c.start("g")
	h.decide(h.poll("workflow"), step)
	job = h.poll("activity")
	h.logs(logItem(job, "w1", 1, long))
	h.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w1",
		"activity_attempt_id":%q,"lines":[{"part":2,"lines":[%s]},{"part":3,"lines":[%s]}]}]}`,
		job.text("task_id"), job.text("activity_attempt_id"), flood, flood))
	got, _ = c.kept(job.text("task_id"), "")
	if n := protocol.LogSize(got.Lines); n > protocol.MaxLogBytes+64 || n < protocol.MaxLogBytes-64 {
		t.Errorf("%d bytes are kept of a flood that came with the outcome", n)
	}
}

// An app numbers chunks without a number in sequence, also if two apps receive chunks at once, or with the outcome. All
// lines reported as recorded are stored; a number above the maximum is rejected.
func TestChunksWithoutANumberAreAllKept(t *testing.T) {
	t.Parallel()
	database := apptest.Postgres(t)
	var doors []hand
	for range 2 {
		doors = append(doors, hand{caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}, "w1"})
	}
	h := register(doors[0].caller, "w1", "")
	job := aStep(h.caller, h, "f")
	const rounds = 20
	var all sync.WaitGroup
	for i, door := range doors {
		all.Go(func() {
			for n := range rounds {
				if got := door.logs(logItem(job, "w1", 0, fmt.Sprintf("%d-%d", i, n))); got != "recorded" {
					t.Errorf("chunk %d at app %d: %s", n, i, got)
				}
			}
		})
	}
	all.Wait()
	for _, part := range []string{"9007199254740993", "9223372036854775807"} {
		item := strings.Replace(logItem(job, "w1", 0, "beyond"), `"part":0`, `"part":`+part, 1)
		if got := h.logs(item); got != "validation_failed" {
			t.Errorf("part %s: %s", part, got)
		}
	}
	h.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(`{"items":[{"kind":"activity","task_id":%q,"lease_owner":"w1",
		"activity_attempt_id":%q,"lines":[{"lines":[{"text":"one"}]},{"part":9223372036854775807,"lines":[{"text":"beyond"}]},
		{"lines":[{"text":"two"}]}]}]}`, job.text("task_id"), job.text("activity_attempt_id")))
	got, texts := h.kept(job.text("task_id"), "")
	if len(got.Lines) != 2*rounds+2 || got.Next != 2*rounds+2 || !strings.HasSuffix(texts, ";one;two;") {
		t.Errorf("%d lines are kept, the last has number %d: %s", len(got.Lines), got.Next, texts)
	}
	for i := range doors {
		for n := range rounds {
			if line := fmt.Sprintf("%d-%d;", i, n); !strings.Contains(";"+texts, ";"+line) {
				t.Errorf("%s was said to be kept", line)
			}
		}
	}
}

// Lines are deleted when they reach the maximum age, or with their run if that is earlier.
func TestLogLinesAreDeletedByAgeOrWithTheirRun(t *testing.T) {
	database := apptest.SQLite(t)
	var shift atomic.Int64
	a := shifted(t, database, &shift, func(o *app.Options) { o.LogAge = 48 * time.Hour })
	c := caller{t, a, ""}
	h := register(c, "w1", "")
	task := map[string]string{}
	for _, id := range []string{"kept", "kept too"} {
		job := aStep(c, h, id)
		task[id] = job.text("task_id")
		h.logs(logItem(job, "w1", 1, id))
		h.want(200, "POST", stepPath(job, "complete"), h.stepBody(job, ""))
		h.decide(h.poll("workflow"), finish)
	}
	rows := func() int { return len(apptest.DumpDatabase(t, database)["activity_logs"]) }
	next, err := a.Broker().Prune(t.Context())
	if err != nil || next > 48*time.Hour || next < 47*time.Hour || rows() != 2 {
		t.Errorf("the next look is in %s, %v, with %d rows", next, err, rows())
	}
	shift.Store(int64(49 * time.Hour))
	if _, err := a.Broker().Prune(t.Context()); err != nil || rows() != 0 {
		t.Errorf("after two days there are %d rows, %v", rows(), err)
	}
	if _, texts := c.kept(task["kept"], ""); texts != "" {
		t.Errorf("got %s", texts)
	}
	c.want(200, "GET", "/api/workflows/kept", "")
	h.logs(logItem(aStep(c, h, "short"), "w1", 1, "short"))
	c.want(200, "POST", "/api/workflows/short/terminate", `{}`)
	c.want(200, "PUT", "/api/namespaces/default", `{"retention_days":1}`)
	shift.Add(int64(25 * time.Hour))
	if _, err := a.Broker().Prune(t.Context()); err != nil || rows() != 0 {
		t.Errorf("after the run there are %d rows, %v", rows(), err)
	}
}
