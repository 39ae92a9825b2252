package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
)

// signInFrom signs in with a token from an address, and returns the status and the response time.
func signInFrom(t *testing.T, h *httpapi.API, token, address string) (status int, took time.Duration) {
	t.Helper()
	r := httptest.NewRequestWithContext(
		t.Context(), "POST", "/api/sojourn/login", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)),
	)
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = address + ":4711"
	w, began := httptest.NewRecorder(), time.Now()
	h.ServeHTTP(w, r)
	return w.Code, time.Since(began)
}

// Wrong tokens delay only their own responses: a valid sign-in is answered at once while all places for delayed
// responses are in use, also from the address that uses them.
func TestAValidSignInIsNeverDelayedByFailedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := handler(f, auth.Options{}, zerolog.Nop())
		counts := map[int]int{}
		type outcome struct {
			status int
			took   time.Duration
		}
		const addresses, each = 20, 10
		outcomes := make(chan outcome, addresses*each)
		for a := range addresses {
			for range each {
				go func() {
					status, took := signInFrom(t, h, "wrong", fmt.Sprintf("192.0.2.%d", a))
					outcomes <- outcome{status, took}
				}()
			}
		}
		synctest.Wait()
		for a := range addresses {
			if status, took := signInFrom(t, h, secret, fmt.Sprintf("192.0.2.%d", a)); status != 200 || took != 0 {
				t.Errorf("a valid sign-in beside the failed ones: %d after %s", status, took)
			}
		}
		for range addresses * each {
			o := <-outcomes
			counts[o.status]++
			if want := map[int]time.Duration{401: 500 * time.Millisecond}[o.status]; o.took != want {
				t.Errorf("response %d after %s, want %s", o.status, o.took, want)
			}
		}
		if counts[401] != 50 || counts[429] != addresses*each-50 {
			t.Errorf("statuses %v, want 50 delayed responses, the others refused at once", counts)
		}
		// One address has five places, however many are free.
		for range each {
			go func() {
				status, took := signInFrom(t, h, "wrong", "198.51.100.1")
				outcomes <- outcome{status, took}
			}()
		}
		clear(counts)
		for range each {
			counts[(<-outcomes).status]++
		}
		if counts[401] != 5 || counts[429] != each-5 {
			t.Errorf("statuses of one address %v, want 5 delayed responses", counts)
		}
	})
}

// Failed sign-ins are logged and audited once per address and minute, with their count and without the token.
func TestFailedSignInsAreReportedOncePerAddressAndMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var lines bytes.Buffer
		h := handler(f, auth.Options{}, zerolog.New(zerolog.SyncWriter(&lines)))
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.ReportSignIns(ctx)
		}()
		attempts := map[string]int{"192.0.2.1": 100, "192.0.2.2": 1}
		for address, n := range attempts {
			for range n {
				signInFrom(t, h, "wrong", address) // half a second each
			}
		}
		if got := len(f.notes); got != 2 {
			t.Errorf("%d audit entries within the first minute, want one for each address", got)
		}
		if n := f.notes[0]; n.Action != "sign_in.failed" || n.Identity != "unknown" || attempts[n.Target] == 0 {
			t.Errorf("audited as %+v", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		reported := map[string]int{}
		for line := range strings.Lines(lines.String()) {
			var l struct {
				Message, Address string
				Count            int
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			if l.Message == "sign-in failed" {
				reported[l.Address] += l.Count
			}
		}
		if reported["192.0.2.1"] != 100 || reported["192.0.2.2"] != 1 {
			t.Errorf("the log counts %v, want %v", reported, attempts)
		}
		if n := strings.Count(lines.String(), "\n"); n != 3 || len(f.notes) != 3 {
			t.Errorf("%d lines in the log and %d audit entries, want 3:\n%s", n, len(f.notes), lines.String())
		}
		if strings.Contains(lines.String(), "wrong") {
			t.Errorf("the log shows the token: %s", lines.String())
		}
		signInFrom(t, h, "wrong", "192.0.2.3") // reported at once
		signInFrom(t, h, "wrong", "192.0.2.3") // reported at the end
		end()
		<-ended
		if len(f.notes) != 5 {
			t.Errorf("%d audit entries, want what was counted before the end as well: %v", len(f.notes), f.notes)
		}
	})
}
