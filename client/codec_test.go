package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func aesKey(id string, secret byte) codec.Key {
	return codec.Key{ID: id, Secret: bytes.Repeat([]byte{secret}, codec.KeySize)}
}

func encrypting(t *testing.T, current codec.Key, previous ...codec.Key) codec.Codec {
	t.Helper()
	c, err := codec.Encrypt(current, previous...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encryptedClient returns a client with codecs.
func encryptedClient(t *testing.T, url string, list ...codec.Codec) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URLs: []string{url}, Codecs: list})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encryptedWorker runs a worker with codecs over HTTP and returns a function that stops it.
func encryptedWorker(t *testing.T, url string, list ...codec.Codec) (stop func()) {
	t.Helper()
	r := worker.NewRegistry()
	r.UseCodecs(list...)
	r.Workflow("letter", func(ctx workflow.Context, to string) (string, error) {
		text := ""
		workflow.HandleUpdate(ctx, "write", func(_ workflow.Context, line string) (string, error) {
			text += line
			return text, nil
		})
		workflow.HandleQuery(ctx, "text", func(workflow.Context) (string, error) { return text, nil })
		var end string
		if err := workflow.Signal(ctx, "send").Receive(ctx, &end); err != nil {
			return "", err
		}
		return workflow.Execute[string](ctx, "deliver", to, text+end)
	})
	r.Workflow("permit", func(ctx workflow.Context) (string, error) {
		granted, denied := workflow.Awakeable[string](ctx, 0), workflow.Awakeable[string](ctx, 0)
		text, err := granted.Result(ctx)
		if err != nil {
			return "", err
		}
		failed, _ := errors.AsType[*workflow.AwakeableError](denied.Get(ctx, nil))
		var why string
		err = failed.DecodeDetails(&why)
		return text + ", " + failed.Message + ", " + why, err
	})
	r.Workflow("licence", func(ctx workflow.Context, to string) (string, error) {
		ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2}})
		_, err := workflow.Execute[string](ctx, "apply", to)
		denied, ok := errors.AsType[*workflow.ActivityError](err)
		if !ok {
			return "", fmt.Errorf("not denied: %w", err)
		}
		var why string
		if err := denied.DecodeDetails(&why); err != nil {
			return "", err
		}
		licence, err := workflow.Execute[string](ctx, "apply", to)
		return denied.Type + ", " + why + ", " + licence, err
	})
	r.Activity("apply", func(context.Context, string) (string, error) { return "", activity.ErrPending })
	r.Activity("deliver", func(_ context.Context, to, text string) (string, error) {
		if to == "nobody" {
			return "", activity.NewError("Returned", "no such address", activity.Details("return "+text))
		}
		return to + ": " + text, nil
	})
	w, err := worker.New(worker.Options{
		Registry: r, URLs: []string{url}, Release: "test", Logger: slogbridge.Slog(apptest.Log(t)),
		Executors: worker.ExecutorOptions{Disabled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestAClientEncryptsWhatItSendsAndDecryptsWhatItReceives(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		secret := encrypting(t, aesKey("k1", 1))
		encryptedWorker(t, a.URL(), codec.Compress(0), secret)
		c, ctx := encryptedClient(t, b.URL(), codec.Compress(0), secret), t.Context()
		long := strings.Repeat("long letter. ", 200_000) // 2.6 MB, more than the app's limit
		w, err := c.SignalWithStart(ctx, "letter", client.Args{"anna"}, "none", client.Args{1}, client.StartOptions{
			WorkflowID: "l-1", IdempotencyKey: "i-1",
		})
		if err != nil {
			t.Fatal(err)
		}
		// The repetition by another process has other ciphertexts.
		again, err := c.SignalWithStart(ctx, "letter", client.Args{"anna"}, "none", client.Args{1}, client.StartOptions{
			WorkflowID: "l-1", IdempotencyKey: "i-1",
		})
		if err != nil || again.RunID != w.RunID {
			t.Errorf("repeated: %+v, %v", again, err)
		}
		for range 2 {
			u, err := w.StartUpdate(ctx, "write", client.Args{long}, client.UpdateOptions{RequestID: "u-1"})
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if err := u.Result(ctx, &got); err != nil || got != long {
				t.Errorf("update: %d bytes, %v", len(got), err)
			}
		}
		var text string
		if err := w.Query(ctx, "text", &text); err != nil || text != long {
			t.Errorf("query: %d bytes, %v", len(text), err)
		}
		if err := w.Signal(ctx, "send", "bye"); err != nil {
			t.Fatal(err)
		}
		var result string
		if err := w.Result(ctx, &result); err != nil || result != "anna: "+long+"bye" {
			t.Errorf("result: %d bytes, %v", len(result), err)
		}
		run, err := w.Describe(ctx)
		if err != nil || string(run.Input) != `["anna"]` || !strings.HasPrefix(string(run.Output), `"anna: long`) {
			t.Errorf("described: %s, %.40s, %v", run.Input, run.Output, err)
		}
		checkOutside(t, a.URL(), w.RunID)
		events := 0
		for e, err := range w.History(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			var args []string
			if e.Type == "ActivityScheduled" {
				if err := e.Decode("arguments", &args); err != nil || len(args) != 2 || args[0] != "anna" {
					t.Errorf("arguments of the activity: %.40v, %v", args, err)
				}
				events++
			}
		}
		if events != 1 {
			t.Errorf("%d activities in the history", events)
		}
	})
}

// checkOutside checks what a client without the codec sees of a completed run.
func checkOutside(t *testing.T, url, run string) {
	t.Helper()
	outside := asking(t, url).Handle("l-1", run)
	v, err := outside.Describe(t.Context())
	if err != nil || strings.Contains(string(v.Input)+string(v.Output), "anna") {
		t.Errorf("a client without the codec sees %s, %s, %v", v.Input, v.Output, err)
	}
	const want = `payload is encrypted with key "k1"; configure the codec`
	var text string
	if err := outside.Result(t.Context(), &text); err == nil || err.Error() != want {
		t.Errorf("result without the codec: %v", err)
	}
	for e, err := range outside.History(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(e.Attributes), "YW5uY") || strings.Contains(string(e.Attributes), "anna") {
			t.Errorf("readable: %s", e.Attributes)
		}
		if e.Type == "WorkflowStarted" {
			if err := e.Decode("arguments", &text); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("event without the codec: %v", err)
			}
		}
	}
}

// A worker without the key neither fails the run nor its activities: another worker can continue them.
func TestARunWaitsForAWorkerWithTheKey(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		ctx := t.Context()
		both := encrypting(t, aesKey("k2", 2), aesKey("k1", 1))
		c := encryptedClient(t, a.URL(), both)
		stop := encryptedWorker(t, a.URL(), encrypting(t, aesKey("k1", 1)))
		w, err := c.Start(ctx, "letter", client.Args{"nobody"}, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const want = `payload is encrypted with key "k2"; configure the codec`
		for {
			v, err := w.Describe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if v.Wait != nil && strings.HasPrefix(v.Wait.Detail, want) {
				break
			}
			if v.Closed {
				t.Fatalf("the run ended: %+v", v)
			}
			time.Sleep(20 * time.Millisecond)
		}
		stop()
		encryptedWorker(t, a.URL(), both)
		if err := w.Signal(ctx, "send", "bye"); err != nil {
			t.Fatal(err)
		}
		err = w.Result(ctx, nil)
		failed, ok := errors.AsType[*client.NotCompleted](err)
		if !ok || !strings.Contains(err.Error(), "no such address") {
			t.Fatalf("result: %v", err)
		}
		var details string
		if err := failed.Run.Failure.DecodeDetails(&details); err != nil || details != "return bye" {
			t.Errorf("details: %q, %v", details, err)
		}
	})
}

// An activity whose worker lacks the key is returned without an attempt.
func TestAnActivityWaitsForAWorkerWithTheKey(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	secret := encrypting(t, aesKey("k1", 1))
	stop := encryptedWorker(t, a.URL())
	c := encryptedClient(t, a.URL(), secret)
	w, err := c.StartActivity(ctx, "deliver", client.Args{"anna", "text"}, client.ActivityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		v, err := w.Describe(ctx)
		if err != nil || v.Closed {
			t.Fatalf("%+v, %v", v, err)
		}
		if v.Wait != nil && strings.Contains(v.Wait.Message+v.Wait.Detail, `encrypted with key "k1"`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	encryptedWorker(t, a.URL(), secret)
	var got string
	if err := w.Result(ctx, &got); err != nil || got != "anna: text" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAScheduleStartsRunsWithEncryptedArguments(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	secret := encrypting(t, aesKey("k1", 1))
	encryptedWorker(t, a.URL(), secret)
	c := encryptedClient(t, a.URL(), secret)
	s, err := c.CreateSchedule(ctx, "daily", client.ScheduleOptions{
		Spec:   client.ScheduleSpec{Cron: []string{"@yearly"}},
		Action: client.ScheduleAction{ActivityType: "deliver", Args: client.Args{"anna", "text"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	fired, err := s.Trigger(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := asking(t, a.URL()).Handle(fired.WorkflowID, "").Describe(ctx)
	if err != nil || strings.Contains(string(v.Input), "anna") {
		t.Errorf("readable: %s, %v", v.Input, err)
	}
	var got string
	if err := c.Handle(fired.WorkflowID, "").Result(ctx, &got); err != nil || got != "anna: text" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestInvalidCodecsAreRefused(t *testing.T) {
	secret := encrypting(t, aesKey("k1", 1))
	_, err := client.New(client.Options{URLs: []string{"http://localhost"}, Codecs: []codec.Codec{secret, secret}})
	if err == nil || !strings.Contains(err.Error(), "two codecs") {
		t.Errorf("got %v", err)
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "codec 0 is nil") {
			t.Errorf("panic %q", text)
		}
	}()
	worker.NewRegistry().UseCodecs(nil)
}
