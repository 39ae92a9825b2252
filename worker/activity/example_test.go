package activity_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/sojourn-run/sojourn/worker/activity"
)

// The type of an error decides whether the activity is retried. The workflow receives the type and the details.
func ExampleNewError() {
	charge := func(amount int) error {
		if amount > 100 {
			return activity.NewError("card_declined", "no credit", activity.NonRetryable, activity.Details(amount-100))
		}
		return nil
	}
	err := fmt.Errorf("order 7: %w", charge(120))

	var failed *activity.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Type, failed.NonRetryable, failed.Details)
	}
	fmt.Println(err)
	// Output:
	// card_declined true 20
	// order 7: card_declined: no credit
}

// An activity writes in a session. If a later owner of the session has written, the transaction is rolled back.
func ExampleSessionFence_Apply() {
	var db *sql.DB // the database of the application, with the table of activity.FenceTable
	_ = func(ctx context.Context, line string) error {
		fence, err := activity.Fence(ctx)
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Apply(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO lines (text) VALUES ($1)", line); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// CausedBy keeps the cause, so that errors.Is finds it.
func ExampleCausedBy() {
	_, cause := os.Open("/nowhere")
	err := activity.NewError("input_missing", "no such order", activity.CausedBy(cause))
	fmt.Println(errors.Is(err, os.ErrNotExist), activity.TypeOf(err))
	// Output: true input_missing
}

// The worker reports an error that is not an *activity.Error under the name of its Go type.
func ExampleTypeOf() {
	fmt.Println(activity.TypeOf(&os.PathError{Op: "open", Path: "/nowhere", Err: os.ErrNotExist}))
	fmt.Println(activity.TypeOf(errors.New("broken")))
	// Output:
	// PathError
	// Error
}

// SessionValues holds what the activities of a session share in memory.
func ExampleSessionValues() {
	state := activity.NewSessionValues() // a worker creates one for each session
	state.Set("index", strings.Fields("the quick fox"))
	state.OnClose(func() { fmt.Println("index closed") })

	words, ok := state.Get("index")
	fmt.Println(words, ok)
	state.Close() // the worker calls Close when the session ends
	_, ok = state.Get("index")
	fmt.Println(ok)
	// Output:
	// [the quick fox] true
	// index closed
	// false
}

// The first activity of a session reads the file; the others use what it read.
func ExampleGetOrCreate() {
	ask := func(ctx context.Context, path, word string) (bool, error) {
		words, err := activity.GetOrCreate(ctx, path, func(context.Context) (map[string]bool, error) {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			all := map[string]bool{}
			for w := range strings.FieldsSeq(string(raw)) {
				all[w] = true
			}
			return all, nil
		})
		return words[word], err
	}
	_ = ask
}

// A heartbeat reports progress and returns an error when the activity is cancelled.
func ExampleHeartbeat() {
	count := func(ctx context.Context, path string) (int, error) {
		f, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		lines := 0
		for s := bufio.NewScanner(f); s.Scan(); lines++ {
			if err := activity.Heartbeat(ctx, activity.Progress{Current: float64(lines), Unit: "lines"}); err != nil {
				return 0, err
			}
		}
		return lines, nil
	}
	_ = count
}

// An attempt continues at the line that the previous attempt reported, also if that attempt's worker was killed.
func ExampleLastHeartbeat() {
	publish := func(ctx context.Context, lines []string) error {
		next, _, err := activity.LastHeartbeat[int](ctx) // 0 in the first attempt
		if err != nil {
			return err
		}
		for ; next < len(lines); next++ {
			fmt.Println(lines[next])
			if err := activity.Heartbeat(ctx, next+1); err != nil {
				return err
			}
		}
		return nil
	}
	_ = publish
}

// The bank calls back with the token when the customer has paid: see client.CompleteActivity. Until then the attempt
// uses no worker.
func ExampleErrPending() {
	pay := func(ctx context.Context, order string) (receipt string, err error) {
		form := url.Values{"order": {order}, "token": {activity.Token(ctx)}}
		resp, err := http.PostForm("https://bank.example/payments", form)
		if err != nil {
			return "", err // the retry policy applies
		}
		if err := resp.Body.Close(); err != nil {
			return "", err
		}
		return "", activity.ErrPending
	}
	_ = pay
}

// All attempts of an activity send the same key, so that the payment service charges once.
func ExampleInfo() {
	charge := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", activity.Info(ctx).IdempotencyKey)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	_ = charge
}

// "sojourn activity logs" and the dashboard show these lines with the attempt.
func ExampleLogger() {
	resize := func(ctx context.Context, path string) error {
		log := activity.Logger(ctx).With("path", path)
		log.Info("resizing", "width", 640)
		if _, err := os.Stat(path); err != nil {
			log.Error("image is missing", "error", err)
			return err
		}
		return nil
	}
	_ = resize
}

// The workflow passes the tenant to the activity with workflow.WithHeaders.
func ExampleHeaders() {
	charge := func(ctx context.Context) error {
		activity.Logger(ctx).Info("charging", "tenant", activity.Headers(ctx)["tenant"])
		return nil
	}
	_ = charge
}
