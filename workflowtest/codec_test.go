package workflowtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// secret is part of every value of the workflow of these tests, and must not be in a stored history.
const secret = "s3cret-value"

// readable are the forms of secret in a history: its base64 at each of the three positions.
var readable = []string{secret, "czNjcmV0LXZhbH", "Y3JldC12YWx1", "M2NyZXQtdmFsdW"}

// confidential passes values in every way that a workflow can.
func confidential(ctx workflow.Context, in string, round int) (string, error) {
	received := ""
	workflow.HandleQuery(ctx, "received", func(_ workflow.Context, prefix string) (string, error) {
		return prefix + received, nil
	})
	workflow.HandleUpdate(ctx, "say", func(ctx workflow.Context, text string) (string, error) {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		received += text
		return received, nil
	}, workflow.UpdateOptions{Validate: func(_ workflow.Context, text string) error {
		if !strings.Contains(text, secret) {
			return activity.NewError("empty", "says nothing", activity.Details(secret+"-rejected"))
		}
		return nil
	}})
	if round == 0 {
		return "", workflow.ContinueAsNew(ctx, in, round+1)
	}
	var signal string
	if err := workflow.Signal(ctx, "tell").Receive(ctx, &signal); err != nil {
		return "", err
	}
	effect, err := workflow.SideEffect(ctx, func() string { return secret + "-effect" })
	if err != nil {
		return "", err
	}
	step, err := workflow.Do(ctx, "step", func(context.Context) (string, error) { return secret + "-step", nil })
	if err != nil {
		return "", err
	}
	echoed, err := workflow.Execute[string](ctx, "echo", in+signal+effect+step)
	if err != nil {
		return "", err
	}
	child, err := workflow.ExecuteChild[string](ctx, "child", echoed)
	if err != nil {
		return "", err
	}
	vault := workflow.SessionDefinition{Name: "vault", Arguments: []any{secret + "-set-up"}}
	session := workflow.InSession(ctx, "s-1", vault)
	for range 2 { // the second use passes the same arguments
		if err := workflow.ExecuteActivity(session, "open", secret).Get(ctx, nil); err != nil {
			return "", err
		}
	}
	var details string
	err = workflow.ExecuteActivity(ctx, "fail", secret).Get(ctx, nil)
	if failure, ok := err.(*workflow.ActivityError); !ok || failure.DecodeDetails(&details) != nil {
		return "", err
	}
	err = workflow.Until(ctx, func() bool { return received != "" })
	return child + "|" + details + "|" + received, err
}

func confidentials(list ...codec.Codec) *worker.Registry {
	r := worker.NewRegistry()
	r.Workflow("confidential", confidential, worker.WorkflowOptions{Validated: []string{"say"}})
	r.Workflow("child", func(ctx workflow.Context, in string) (string, error) {
		return in + "-child", workflow.SignalWorkflow(ctx, "other", "nobody", secret)
	})
	r.Activity("echo", func(_ context.Context, in string) (string, error) { return in + "-echo", nil })
	r.Activity("fail", func(context.Context, string) error {
		return activity.NewError("Broken", "no reason", activity.Details(secret+"-details"))
	})
	r.Session("vault", activity.SessionDefinition{
		SetUp: func(_ context.Context, in string) (string, error) { return in, nil },
	})
	r.Activity("open", func(ctx context.Context, _ string) error {
		if in, err := activity.State[string](ctx); err != nil || in != secret+"-set-up" {
			return activity.NewError("Arguments", "the set-up received "+in)
		}
		return nil
	})
	r.UseCodecs(list...)
	return r
}

func encryption(t *testing.T, id string, secret byte) codec.Codec {
	t.Helper()
	c, err := codec.Encrypt(codec.Key{ID: id, Secret: bytes.Repeat([]byte{secret}, codec.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tellAll runs the workflow of these tests and returns its result and its stored histories.
func tellAll(t *testing.T, env *workflowtest.Env) (result string, histories []byte) {
	t.Helper()
	w := env.Start("confidential", secret+"-in", 0)
	w.Signal("tell", secret+"-signal")
	_, err := workflowtest.Update[string](w, "say", "nothing")
	var details string
	if rejected, ok := err.(*workflowtest.Failure); !ok || rejected.DecodeDetails(&details) != nil ||
		details != secret+"-rejected" {
		t.Errorf("rejected update: %v, details %q", err, details)
	}
	if said, err := workflowtest.Update[string](w, "say", secret+"-update"); err != nil || said != secret+"-update" {
		t.Errorf("update: %q, %v", said, err)
	}
	if got, err := workflowtest.Query[string](w, "received", secret+"-query "); err != nil ||
		got != secret+"-query "+secret+"-update" {
		t.Errorf("query: %q, %v", got, err)
	}
	result, err = workflowtest.Result[string](w)
	if err != nil {
		t.Fatal(err)
	}
	for _, events := range env.Recorded() {
		raw, err := json.Marshal(events)
		if err != nil {
			t.Fatal(err)
		}
		histories = append(append(histories, raw...), '\n')
	}
	return result, histories
}

const told = secret + "-in" + secret + "-signal" + secret + "-effect" + secret + "-step-echo-child|" + secret +
	"-details|" + secret + "-update"

// After the test, Run replays every history and compares the arguments of all calls.
func TestNoValueIsReadableInAnEncryptedHistory(t *testing.T) {
	r := confidentials(codec.Compress(1), encryption(t, "k1", 1))
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		result, histories := tellAll(t, env)
		if result != told {
			t.Errorf("got  %s\nwant %s", result, told)
		}
		for line := range bytes.Lines(histories) {
			for _, text := range readable {
				if i := bytes.Index(line, []byte(text)); i >= 0 {
					t.Errorf("readable: …%s…", line[max(0, i-300):min(len(line), i+100)])
				}
			}
		}
		if bytes.Contains(histories, []byte("session_warning")) {
			t.Error("the second use of the session has a warning about its arguments")
		}
		if n := bytes.Count(histories, []byte("no reason")); n == 0 {
			t.Error("the message of a failure is not readable")
		}
	})
}

// The histories of runs that began before codecs were configured stay valid.
func TestHistoriesWithoutCodecsAreReplayedWithCodecs(t *testing.T) {
	dir := t.TempDir()
	workflowtest.Run(t, confidentials(), func(t *testing.T, env *workflowtest.Env) {
		result, histories := tellAll(t, env)
		if result != told {
			t.Errorf("got %s", result)
		}
		for _, text := range readable[1:] {
			if !bytes.Contains(histories, []byte(text)) {
				t.Errorf("without codecs, no history contains %s", text)
			}
		}
		writeHistories(t, dir, histories)
	})
	workflowtest.Replay(t, confidentials(codec.Compress(1), encryption(t, "k1", 1)), filepath.Join(dir, "*.json"))
}

func TestAnEncryptedHistoryIsReplayedOnlyWithItsKey(t *testing.T) {
	dir := t.TempDir()
	workflowtest.Run(t, confidentials(encryption(t, "k1", 1)), func(t *testing.T, env *workflowtest.Env) {
		_, histories := tellAll(t, env)
		writeHistories(t, dir, histories)
	})
	workflowtest.Replay(t, confidentials(encryption(t, "k1", 1)), filepath.Join(dir, "*.json"))
	for name, c := range map[string]struct {
		list []codec.Codec
		want string
	}{
		"no codec":     {nil, `payload is encrypted with key "k1"; configure the codec`},
		"another key":  {[]codec.Codec{encryption(t, "k2", 1)}, `payload is encrypted with key "k1"; configure the codec`},
		"wrong secret": {[]codec.Codec{encryption(t, "k1", 2)}, `key "k1": cipher: message authentication failed`},
	} {
		rec := &recorder{TB: t}
		workflowtest.Replay(rec, confidentials(c.list...), filepath.Join(dir, "*.json"))
		if got := rec.text(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func writeHistories(t *testing.T, dir string, histories []byte) {
	t.Helper()
	for i, raw := range bytes.Split(bytes.TrimSpace(histories), []byte("\n")) {
		if bytes.Contains(raw, []byte(`"workflow_type":"confidential"`)) {
			if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".json"), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
