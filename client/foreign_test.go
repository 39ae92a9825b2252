package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// For a wrong URL the error explains the problem and does not contain the error page of the other server.
func TestAnotherServerIsNotTakenForAnApp(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	err := asking(t, other.URL+"/path").Handle("w", "").Signal(t.Context(), "go")
	if err == nil || !strings.Contains(err.Error(), "the server at "+other.URL+" is not a Sojourn app") ||
		strings.Contains(err.Error(), "page not found") {
		t.Errorf("a server that is no app: %v", err)
	}
	over := strings.Replace(other.URL, "http:", "https:", 1)
	err = asking(t, over).Handle("w", "").Signal(t.Context(), "go")
	if want := "the app at " + over + " speaks plain HTTP; use http://"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
