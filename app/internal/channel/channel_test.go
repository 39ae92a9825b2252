package channel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/channel"
	room "github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestRejectedConnectHasAReasonWithoutTheToken(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	for name, c := range map[string]struct {
		auth any
		want string
	}{
		"no auth":        {nil, "malformed_payload"},
		"of wrong types": {map[string]any{"workerId": 7}, "malformed_payload"},
		"no token":       {protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, "unauthorized"},
		"wrong token":    {protocol.ChannelAuth{Token: "sjn_no_such", WorkerID: "w", Protocol: 1}, "unauthorized"},
		"wrong protocol": {
			protocol.ChannelAuth{Token: "sjn_bootstrap_secretsecretsecretsecret", WorkerID: "w", Protocol: 7},
			"unsupported_protocol_version",
		},
		"no worker id": {
			protocol.ChannelAuth{Token: "sjn_bootstrap_secretsecretsecretsecret", Protocol: 1}, "validation_failed",
		},
	} {
		_, err := dial(t, a, c.auth, nil)
		var refused *socketio.ConnectError
		if !errors.As(err, &refused) || refused.Reason != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		} else if strings.Contains(refused.Message, "sjn_") {
			t.Errorf("%s: the message speaks of the token: %s", name, refused.Message)
		}
	}
	if _, err := dial(t, a, protocol.ChannelAuth{
		Token: "sjn_bootstrap_secretsecretsecretsecret", WorkerID: "w", Protocol: 1,
	}, nil); err != nil {
		t.Errorf("the right token: %v", err)
	}
}

func TestCallBeforeSettingsIsRefusedAndNeverSilent(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	p, err := dial(t, a, protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.refusal("settings_required", protocol.MethodPoll, nil)
	p.settings(nil)
	p.refusal("unknown_method", "juggle", nil)
	p.refusal("validation_failed", protocol.MethodPoll, "a string")
}

// Clients of Socket.IO send buffered calls before their connect handlers run: before they fetch settings and register.
func TestJobsHeldFromAnEarlierConnectionAreServedBeforeTheSettings(t *testing.T) {
	apptest.Databases(t, jobsServedBeforeSettings)
}

func jobsServedBeforeSettings(t *testing.T, database string) {
	a, b := apptest.Two(t, apptest.Options{Database: database})
	s, old := scheduler(t, a), join(t, a, "w", "test")
	runs, jobs := []string{}, []protocol.Job{}
	for range 4 {
		runs = append(runs, schedule(t, a, s, 1))
		jobs = append(jobs, old.job(nil))
	}
	schedule(t, a, s, 1) // a task is ready for the worker, which has not registered on its new connection
	old.hangUp()
	w, err := dial(t, b, protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := func(j protocol.Job, more map[string]any) map[string]any {
		more["jobId"], more["token"] = j.ID, j.Token
		return more
	}
	for method, more := range map[string]map[string]any{
		protocol.MethodExtendLock: {}, protocol.MethodReportProgress: {"progress": map[string]any{"message": "half"}},
	} {
		if got := call[protocol.JobLock](w, method, ref(jobs[0], more)); got.LockExpiresAt.IsZero() {
			t.Errorf("%s: got %+v", method, got)
		}
	}
	if got := call[*protocol.Job](w, protocol.MethodReturnJob, ref(jobs[1], map[string]any{})); got != nil {
		t.Errorf("got %+v", got)
	}
	stale := ref(jobs[2], map[string]any{"status": "OK"})
	stale["token"] = "a9.w"
	w.refusal("stale_attempt", protocol.MethodCompleteJob, stale)
	next := map[string]any{"status": "OK", "next": map[string]any{"max": 5}}
	out := call[map[string]any](w, protocol.MethodCompleteJob, ref(jobs[2], next))
	if list, _ := out["jobs"].([]any); out["pollStatus"] != "empty" || len(list) != 0 {
		t.Errorf("next before the settings: got %v", out)
	}
	has[*history.ActivityCompleted](t, b, runs[2])

	refused := int64(0)
	for method := range b.Channel().Handlers() {
		switch method {
		case protocol.MethodExtendLock, protocol.MethodReportProgress, protocol.MethodReturnJob, protocol.MethodCompleteJob:
		default:
			w.refusal("settings_required", method, map[string]any{})
			refused++
		}
	}
	if n := b.Channel().Stats().EarlyCalls; n != refused {
		t.Errorf("%d refusals were counted, want %d", n, refused)
	}

	w.settings(nil)
	out = call[map[string]any](w, protocol.MethodCompleteJob, ref(jobs[3], next))
	if list, _ := out["jobs"].([]any); out["pollStatus"] != "empty" || len(list) != 0 {
		t.Errorf("next before register: got %v", out)
	}
	call[protocol.RegisterResponse](
		w, protocol.MethodRegister, protocol.RegisterRequest{AnyActivity: true, Release: "test"},
	)
	for range 2 { // the returned job and the job that was ready
		w.job(nil)
	}
}

func TestSecondSettingsCallLeavesOneHandler(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	p := join(t, a, "w", "test")
	for range 3 {
		if s := p.settings(nil); s.Release != "test" || s.LockSeconds != 120 {
			t.Errorf("got %+v", s)
		}
	}
	call[protocol.RegisterResponse](p, protocol.MethodRegister, protocol.RegisterRequest{ActivityTypes: []string{"work"}})
	s := scheduler(t, a)
	run := schedule(t, a, s, 1)
	j := p.job(nil)
	p.ok(j, map[string]any{"result": encode(t, "x")})
	// Two handlers would have polled twice and completed twice.
	has[*history.ActivityCompleted](t, a, run)
	if n := a.Connections().Stats().StaleCompletions; n != 0 {
		t.Errorf("%d stale completions", n)
	}
}

func TestUnknownMembersOfCallsAreCounted(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := join(t, a, "w", "test")
	count := func() []string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^sojourn_worker_unknown_members_total\{.*$`).FindAllString(string(raw), -1)
	}
	if got := count(); len(got) != 0 {
		t.Errorf("without unknown members: %q", got)
	}
	call[map[string]any](w, protocol.MethodHeartbeat, map[string]any{
		"worker_id": "w", "zz": map[string]any{"yy": 1}, "task_slots": map[string]any{"zz": 1},
	})
	if got := count(); len(got) != 1 ||
		got[0] != `sojourn_worker_unknown_members_total{operation="`+protocol.MethodHeartbeat+`"} 1` {
		t.Errorf("got %q", got)
	}
}

func TestMalformedTelemetryIsIgnored(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	p, err := dial(t, a, protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, machine := range []any{
		"none", 7, []int{1}, map[string]any{"cpuUsagePercentage": "much"}, map[string]any{"workerProps": 3},
	} {
		if s := p.settings(machine); s.Release != "test" {
			t.Errorf("%v: got %+v", machine, s)
		}
	}
	if n := a.Channel().Stats().MalformedMachines; n != 5 {
		t.Errorf("%d counted, want 5", n)
	}
}

func TestWorkerThatNeverRegistersGetsActivitiesOfAnyTypeAndNoWorkflowTasks(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := scheduler(t, a)
	w := join(t, a, "plain", "test")
	if got := call[*protocol.Job](w, protocol.MethodPoll, map[string]any{"timeoutMs": 0}); got != nil {
		t.Fatalf("an empty queue gave %+v", got)
	}
	answer, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if got := call[*protocol.Job](w, protocol.MethodPoll, map[string]any{"timeoutMs": 0}); got != nil {
		t.Fatalf("a worker without workflows was given %+v", got)
	}
	flow := s.job(nil)
	s.ok(flow, map[string]any{"commands": []protocol.Command{{Type: protocol.ScheduleActivity, ActivityType: "whatever"}}})
	j := w.job(nil)
	if j.Kind != protocol.KindActivity || j.Task.Activity.ActivityType != "whatever" || j.LockExpiresAt.IsZero() ||
		j.Release != "test" {
		t.Errorf("got %+v", j)
	}
	w.ok(j, map[string]any{"result": map[string]any{"codec": "avro", "blob": encode(t, "done")}})
	if d := has[*history.ActivityCompleted](t, a, answer.RunID); d.Worker != "plain" {
		t.Errorf("completed by %q", d.Worker)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	p, err := payload.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return p.Blob
}

func TestPollAnswersOneJobOrNullAndWithMaxAnObject(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := join(t, a, "w", "test")
	raw := call[json.RawMessage](w, protocol.MethodPoll, map[string]any{"timeoutMs": 0})
	if len(raw) != 0 && string(raw) != "null" {
		t.Errorf("got %s, want null", raw)
	}
	many := call[map[string]any](w, protocol.MethodPoll, map[string]any{"timeoutMs": 0, "max": 5})
	if many["pollStatus"] != "empty" || many["jobs"] == nil {
		t.Errorf("got %v", many)
	}
}

// After the release gate closes, a worker renews, completes and returns its tasks, and gets no more.
func TestMismatchedWorkerFinishesRenewsAndReturnsTasks(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := scheduler(t, a)
	w := join(t, a, "w", "test")
	register := func(release string) {
		t.Helper()
		call[protocol.RegisterResponse](
			w, protocol.MethodRegister, protocol.RegisterRequest{ActivityTypes: []string{"work"}, Release: release},
		)
	}
	register("test")
	done, back := schedule(t, a, s, 1), schedule(t, a, s, 1)
	jobs := map[string]protocol.Job{}
	for range 2 {
		j := w.job(nil)
		jobs[j.Task.Activity.RunID] = j
	}
	register("0.1.0")
	waits := schedule(t, a, s, 1)
	gated := func() {
		t.Helper()
		if got := call[protocol.ChannelPollResponse](
			w, protocol.MethodPoll, map[string]any{"max": 5},
		); got.Status != protocol.PollMismatch || len(got.Jobs) > 0 {
			t.Errorf("got %+v", got)
		}
	}
	gated()
	j := jobs[done]
	lock := call[protocol.JobLock](w, protocol.MethodExtendLock, protocol.JobRef{ID: j.ID, Token: j.Token})
	if !lock.LockExpiresAt.After(j.LockExpiresAt.Time) {
		t.Errorf("renewed to %s, from %s", lock.LockExpiresAt, j.LockExpiresAt)
	}
	w.ok(j, map[string]any{"result": encode(t, "x")})
	if d := has[*history.ActivityCompleted](t, a, done); d.Worker != "w" {
		t.Errorf("completed by %q", d.Worker)
	}
	j = jobs[back]
	if err := w.Call(
		within(t), protocol.MethodReturnJob, map[string]any{"jobId": j.ID, "token": j.Token, "reason": "it leaves"}, nil,
	); err != nil {
		t.Fatal(err)
	}
	gated()
	other := join(t, a, "other", "test")
	for range 2 {
		other.ok(other.job(nil), map[string]any{"result": encode(t, "x")})
	}
	for _, run := range []string{back, waits} {
		if d := has[*history.ActivityCompleted](t, a, run); d.Worker != "other" {
			t.Errorf("completed by %q", d.Worker)
		}
	}
}

func TestMismatchedWorkerGetsNothingAndStaysListed(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := join(t, a, "older", "0.1.0")
	if got := call[*protocol.Job](w, protocol.MethodPoll, map[string]any{}); got != nil {
		t.Fatalf("got %+v", got)
	}
	many := call[protocol.ChannelPollResponse](w, protocol.MethodPoll, map[string]any{"max": 1})
	if many.Status != protocol.PollMismatch || many.RetryAfter != 10_000 || many.AppRelease != "test" ||
		!strings.Contains(many.Reason, "0.1.0") {
		t.Errorf("got %+v", many)
	}
	listed := func(status protocol.WorkerStatus) {
		t.Helper()
		list, err := a.View().Workers(within(t), "default", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || list[0].WorkerID != "older" || list[0].Status != status ||
			(list[0].Gate != "") != (status == protocol.WorkerMismatched) {
			t.Errorf("got %+v", list)
		}
	}
	listed(protocol.WorkerMismatched)
	// A worker that compares releases itself sends its release in the registration and never polls.
	register := func(release string) {
		t.Helper()
		call[protocol.RegisterResponse](
			w, protocol.MethodRegister, protocol.RegisterRequest{ActivityTypes: []string{"work"}, Release: release},
		)
	}
	register("test")
	listed(protocol.WorkerActive)
	register("0.1.0")
	listed(protocol.WorkerMismatched)
}

func TestStatusesOfAJobAreOutcomesOfAnAttempt(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	for _, c := range []struct {
		status   string
		more     map[string]any
		category string
		typ      string
		final    bool
	}{
		{"USER_FAILURE", map[string]any{"errorMessage": "no"}, "activity", "", false},
		{
			"USER_FAILURE",
			map[string]any{"response": map[string]any{"failure": map[string]any{"message": "no", "type": "Mine"}}},
			"activity",
			"Mine", false,
		},
		{"TIMEOUT", nil, "timeout", "timeout", false},
		{"MEMORY_ISSUE", nil, "activity", "out_of_memory", false},
		{"LOG_SIZE_EXCEEDED", nil, "activity", "log_size_exceeded", true},
	} {
		run := schedule(t, a, s, 1)
		j := w.job(nil)
		in := map[string]any{"jobId": j.ID, "token": j.Token, "status": c.status}
		for k, v := range c.more {
			in[k] = v
		}
		if err := w.Call(within(t), protocol.MethodCompleteJob, in, nil); err != nil {
			t.Fatal(err)
		}
		d := has[*history.ActivityFailed](t, a, run)
		if d.Category != c.category || d.ExceptionType != c.typ || d.NonRetryable != c.final {
			t.Errorf("%s: got %+v", c.status, d.Failure)
		}
		s.ok(s.job(nil), map[string]any{"commands": []protocol.Command{{Type: protocol.CompleteWorkflow}}})
	}
	schedule(t, a, s, 1)
	j := w.job(nil)
	w.refusal(
		"validation_failed", protocol.MethodCompleteJob,
		map[string]any{"jobId": j.ID, "token": j.Token, "status": "SPLENDID"},
	)
	if err := w.Call(within(t), protocol.MethodCompleteJob, map[string]any{
		"jobId": j.ID, "token": j.Token, "status": "INTERNAL_ERROR",
	}, nil); err != nil {
		t.Fatal(err)
	}
	second := w.job(nil)
	if second.ID != j.ID || second.Token == j.Token || second.Task.Activity.Attempt != 2 {
		t.Errorf("after an internal error: got %+v", second)
	}
}

func TestStaleTokenChangesNothingAndIsCounted(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	run := schedule(t, a, s, 1)
	old := w.job(nil)
	if err := w.Call(within(t), protocol.MethodReturnJob, map[string]any{
		"jobId": old.ID, "token": old.Token, "reason": "tired",
	}, nil); err != nil {
		t.Fatal(err)
	}
	j := w.job(nil)
	if j.ID != old.ID || j.Token == old.Token {
		t.Fatalf("got %+v after %+v", j, old)
	}
	w.refusal(
		"stale_attempt", protocol.MethodCompleteJob, map[string]any{"jobId": old.ID, "token": old.Token, "status": "OK"},
	)
	w.refusal("stale_attempt", protocol.MethodExtendLock, map[string]any{"jobId": old.ID, "token": old.Token})
	w.refusal("malformed_payload", protocol.MethodExtendLock, map[string]any{"jobId": j.ID, "token": "w1"})
	w.refusal("lease_owner_mismatch", protocol.MethodExtendLock, map[string]any{"jobId": j.ID, "token": j.Token + "x"})
	if n := a.Connections().Stats().StaleCompletions; n != 1 {
		t.Errorf("%d stale completions counted, want 1", n)
	}
	lock := call[protocol.JobLock](w, protocol.MethodExtendLock, map[string]any{"jobId": j.ID, "token": j.Token})
	if lock.CancelRequested || lock.LockExpiresAt.Before(j.LockExpiresAt.Time) {
		t.Errorf("got %+v", lock)
	}
	w.ok(j, map[string]any{})
	has[*history.ActivityCompleted](t, a, run)
}

func TestCompletionCarriesItemsAndTheNextPoll(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	schedule(t, a, s, 1)
	j := w.job(nil)
	schedule(t, a, s, 1)
	out := call[protocol.ChannelCompleteResponse](w, protocol.MethodCompleteJob, map[string]any{
		"items": []any{
			map[string]any{"jobId": j.ID, "token": j.Token, "status": "OK"},
			map[string]any{"jobId": j.ID, "token": "nonsense", "status": "OK"},
		},
		"next": map[string]any{"max": 3},
	})
	if len(out.Items) != 2 || !out.Items[0].Recorded || out.Items[1].Error == nil ||
		out.Items[1].Reason != "malformed_payload" {
		t.Errorf("got %+v", out.Items)
	}
	if out.Next == nil || len(out.Next.Jobs) != 1 {
		t.Fatalf("next: got %+v", out.Next)
	}
	single := call[*protocol.Job](w, protocol.MethodCompleteJob, map[string]any{
		"jobId": out.Next.Jobs[0].ID, "token": out.Next.Jobs[0].Token, "status": "OK", "next": map[string]any{},
	})
	if single != nil {
		t.Errorf("got %+v, want null", single)
	}
}

func TestTooLargeValueIsRejectedAndTheConnectionStaysOpen(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	schedule(t, a, s, 1)
	j := w.job(nil)
	blob := strings.Repeat("A", payload.MaxBytes+4)
	w.refusal("payload_too_large", protocol.MethodCompleteJob, map[string]any{
		"jobId": j.ID, "token": j.Token, "status": "OK",
		"response": map[string]any{"result": map[string]any{"codec": "avro", "blob": blob}},
	})
	w.ok(j, map[string]any{})
}

func TestHistoryOfAWorkflowJobIsPaged(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := scheduler(t, a)
	if _, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one"}); err != nil {
		t.Fatal(err)
	}
	j := s.job(nil)
	page := call[protocol.HistoryPage](s, protocol.MethodFetchHistory, map[string]any{"jobId": j.ID, "token": j.Token})
	if len(page.Events) == 0 || page.Events[0].Type() != "WorkflowStarted" {
		t.Errorf("got %+v", page)
	}
}

// If the caller disconnected before its poll returned, the task must not wait for the end of its lease: the app
// requeues it for other polls, also at another app.
func TestJobWithALostResponseIsReturnedAtOnce(t *testing.T) { apptest.Databases(t, jobGoesBack) }

func jobGoesBack(t *testing.T, database string) {
	a, b := apptest.Two(t, apptest.Options{Database: database})
	s, w := scheduler(t, a), join(t, b, "w", "test")
	schedule(t, a, s, 1)
	p, err := a.Connections().NewConn(protocol.ChannelAuth{WorkerID: "lost", Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, delivery := rpc.WithDelivery(rpc.WithPrincipal(within(t), channel.PrincipalOf(p)))
	answer, err := a.Channel().Handlers().Serve(
		ctx, protocol.MethodPoll, json.RawMessage(`{"release":"test","timeoutMs":20000}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	lost := answer.(protocol.ChannelPollResponse)
	if len(lost.Jobs) != 1 {
		t.Fatalf("got %+v", lost)
	}
	delivery.Settle(false)
	j := w.job(nil)
	if j.ID != lost.Jobs[0].ID || j.Task.Activity.Attempt != 1 {
		t.Errorf(
			"got %s attempt %d, want %s attempt 1: what never arrived is no attempt", j.ID, j.Task.Activity.Attempt,
			lost.Jobs[0].ID,
		)
	}
	if n := a.Channel().Stats().Undone; n != 1 {
		t.Errorf("%d undone, want 1", n)
	}
}

func TestSocketThatEndsDuringALongPollLosesNoJob(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := scheduler(t, a)
	gone := join(t, a, "gone", "test")
	polled := make(chan error, 1)
	go func() {
		polled <- gone.Call(context.WithoutCancel(t.Context()), protocol.MethodPoll, map[string]any{}, nil)
	}()
	eventually(t, "the poll waits", func() bool { return a.Dispatch().Counts().Waiting == 1 })
	gone.hangUp()
	if err := <-polled; err == nil {
		t.Error("the poll of a dead socket was answered")
	}
	eventually(t, "the poll is given up", func() bool { return a.Dispatch().Counts().Waiting == 0 })
	schedule(t, a, s, 1)
	w := join(t, a, "w", "test")
	if j := w.job(nil); j.Task.Activity.Attempt != 1 {
		t.Errorf("got %+v", j)
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(ceiling); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", ceiling, what)
		}
	}
}

func TestWorkerIsNotifiedOfACancelledAttempt(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := scheduler(t, a)
	received := make(chan protocol.CancelNotice, 1)
	notices := rpc.Handlers{}
	rpc.Handle(notices, protocol.NoticeCancel, func(_ context.Context, n protocol.CancelNotice) (rpc.None, error) {
		received <- n
		return rpc.None{}, nil
	})
	w, err := dial(t, a, protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, func(s *socketio.Socket) {
		rpc.Serve(s, notices, rpc.Serving{})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.settings(map[string]any{"workerProps": map[string]any{"version": "test"}})
	run := schedule(t, a, s, 1)
	j := w.job(nil)
	flow := j.Task.Activity.WorkflowID
	if _, err := a.Broker().Terminate(within(t), protocol.EndRequest{
		Target: protocol.Target{WorkflowID: flow, RunID: run},
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-received:
		if n.TaskID != j.ID || n.AttemptID != j.Task.Activity.AttemptID {
			t.Errorf("got %+v, want job %s", n, j.ID)
		}
	case <-time.After(ceiling):
		t.Fatal("the worker was not told")
	}
	e := w.refusal("run_terminated", protocol.MethodExtendLock, map[string]any{"jobId": j.ID, "token": j.Token})
	if e.Details["cancelRequested"] != true {
		t.Errorf("got %v", e.Details)
	}
}

// A page of the dashboard receives hints of its topics only, at most one per second. The hints include changes shortly
// before the page subscribed and changes by other apps.
func TestPageIsNotifiedOfItsTopicsOncePerSecond(t *testing.T) { apptest.Databases(t, pageHears) }

func pageHears(t *testing.T, database string) {
	changes, a := apptest.Two(t, apptest.Options{Database: database})
	hints := make(chan protocol.Hint, 1000)
	c, err := socketio.Dial(within(
		t,
	), a.URL(), protocol.NamespaceDashboard, nil, socketio.DialOptions{OnSocket: func(s *socketio.Socket) {
		s.On(protocol.EventHint, func(_ context.Context, args []json.RawMessage) ([]any, error) {
			var h protocol.Hint
			if err := json.Unmarshal(args[0], &h); err != nil {
				t.Error(err)
			}
			hints <- h
			return nil, nil
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Close(nil); _ = c.Wait(context.Background()) }()
	watch := func(topics ...protocol.Topic) {
		t.Helper()
		if _, err := c.EmitWithAck(within(t), protocol.EventWatch, map[string]any{"topics": topics}); err != nil {
			t.Fatal(err)
		}
	}
	next := func() protocol.Hint {
		t.Helper()
		select {
		case h := <-hints:
			return h
		case <-time.After(ceiling):
			t.Fatal("no hint")
			return protocol.Hint{}
		}
	}
	start := func(id string) string {
		t.Helper()
		answer, err := changes.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one", WorkflowID: id})
		if err != nil {
			t.Fatal(err)
		}
		return answer.RunID
	}
	one, other := start("flow"), start("other")
	watch(protocol.Topic{Kind: "run", Namespace: "default", ID: one}) // after the changes that the page is notified of
	if h := next(); h.ID != one || h.WorkflowID != "flow" || h.LastSeq < 1 {
		t.Errorf("got %+v", h)
	}
	watch(protocol.Topic{Kind: "run", Namespace: "default"})
	from, received, signals := time.Now(), 0, 0
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for time.Since(from) < 2500*time.Millisecond {
		<-pace.C
		signals++
		if _, err := changes.Broker().Signal(within(t), protocol.SignalRequest{
			Target: protocol.Target{WorkflowID: "other"}, SignalName: "s", RequestID: fmt.Sprint(signals),
		}); err != nil {
			t.Fatal(err)
		}
	}
	watch() // the page is not visible any more
	took := time.Since(from)
	for len(hints) > 0 {
		h := next()
		if received++; h.ID != "" || h.Kind != "run" || h.Namespace != "default" {
			t.Errorf("got %+v for all runs", h)
		}
	}
	// One hint for changes before the subscription, one per round, and one for a running round.
	if most := int(took/time.Second) + 3; received < 2 || received > most {
		t.Errorf("%d hints for %d changes in %s, want 2 to %d", received, signals, took, most)
	}
	watch(
		protocol.Topic{Kind: "session", Namespace: "default"}, protocol.Topic{Kind: "run", Namespace: "default", ID: other},
	)
	if h := next(); h.ID != other {
		t.Errorf("got %+v", h)
	}
}

func TestRevokedTokenEndsItsConnections(t *testing.T) {
	valid := make(chan bool, 1)
	valid <- true
	c := channel.New(
		among(t, nothing{}, room.Options{}), channel.Options{Recheck: 5 * time.Millisecond, Worker: authenticate(valid)},
	)
	server := serve(t, c)
	client, err := socketio.Dial(
		within(t), server, protocol.NamespaceWorkers, protocol.ChannelAuth{WorkerID: "w", Protocol: 1},
		socketio.DialOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	<-valid
	valid <- false
	select {
	case <-client.Done():
	case <-time.After(ceiling):
		t.Error("the connection lives on")
	}
	_ = client.Wait(within(t))
}

func TestCallReportsAnUnavailableStore(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := join(t, a, "w", "test")
	if err := a.Store().Close(); err != nil {
		t.Fatal(err)
	}
	w.refusal("backend_unavailable", protocol.MethodCreateSession, map[string]any{"session_id": "s"})
}

// A worker's call is rejected once its token is invalid, however late the notification arrives.
func TestACallOfARevokedTokenIsRefused(t *testing.T) {
	var over atomic.Bool
	a := apptest.Start(t, apptest.Options{})
	peers := among(t, a.Broker(), room.Options{
		Revalidate: func(context.Context, any) error {
			if over.Load() {
				return protocol.Refuse(protocol.ReasonUnauthorized, "the token is unknown, expired or revoked")
			}
			return nil
		},
	})
	server := serve(t, channel.New(peers, channel.Options{
		Worker: func(context.Context, string, *http.Request) (any, error) { return "anybody", nil },
	}))
	s, err := socketio.Dial(
		within(t), server, protocol.NamespaceWorkers, protocol.ChannelAuth{WorkerID: "w", Protocol: 1},
		socketio.DialOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	w := &peer{Client: s, SocketCaller: rpc.SocketCaller{Socket: s.Socket}, t: t}
	t.Cleanup(w.hangUp)
	w.settings(map[string]any{"workerId": "w", "workerProps": map[string]any{"version": "test"}})
	w.refusal("session_not_found", protocol.MethodCloseSession, map[string]any{"session_id": "none"})
	over.Store(true)
	w.refusal("unauthorized", protocol.MethodCloseSession, map[string]any{"session_id": "none"})
}
