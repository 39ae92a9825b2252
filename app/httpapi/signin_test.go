package httpapi_test

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
)

// Who guesses tokens waits for each guess behind all others, however many connections there are for it, and every guess
// is logged and noted.
func TestGuessesOfATokenAreSlowedLoggedAndNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var lines bytes.Buffer
		h := handler(f, auth.Options{}, zerolog.New(zerolog.SyncWriter(&lines)))
		began := time.Now()
		const guesses = 10
		took := make(chan time.Duration, guesses)
		for range guesses {
			go func() {
				r := httptest.NewRequestWithContext(
					t.Context(), "POST", "/api/sojourn/login", strings.NewReader(`{"token":"wrong"}`),
				)
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != 401 {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
				took <- time.Since(began)
			}()
		}
		for n := range guesses {
			if got, want := <-took, time.Duration(n+1)*500*time.Millisecond; got != want {
				t.Errorf("answer %d after %s, want %s", n+1, got, want)
			}
		}
		if n := strings.Count(lines.String(), `"message":"sign-in failed"`); n != guesses ||
			strings.Contains(lines.String(), "wrong") {
			t.Errorf("%d lines in the log, want %d, without the token:\n%s", n, guesses, lines.String())
		}
		if len(f.notes) != guesses {
			t.Errorf("%d notes for operators, want %d", len(f.notes), guesses)
		}
	})
}
