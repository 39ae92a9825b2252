package mask_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/mask"
)

func TestPasswordsInAddressesAreHidden(t *testing.T) {
	for text, want := range map[string]string{
		"http://app:7700":                 "http://app:7700",
		"https://me:pass@app/x":           "https://me:********@app/x",
		"https://me:p@ss@app":             "https://me:********@app",
		`parse "http://me:pass@a b": bad`: `parse "http://me:********@a b": bad`,
		"postgres://h/d?password=pass&x=": "postgres://h/d?password=********&x=",
		"http://a,http://me:pass@b":       "http://a,http:********@b",
	} {
		if got := mask.URL(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	if mask.All("") != "" || mask.All("x") == "x" {
		t.Error("a secret is shown, or one that is not set looks set")
	}
}
