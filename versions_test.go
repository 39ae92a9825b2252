package sojourn_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

// The guide names the oldest versions of Go and Node that can build the project.
func TestGuideStatesWhatABuildNeeds(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))
	raw, err := os.ReadFile("web/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var web struct {
		Engines struct {
			Node string `json:"node"`
		} `json:"engines"`
	}
	if err := json.Unmarshal(raw, &web); err != nil || language == nil {
		t.Fatal(err, language)
	}
	node := strings.TrimPrefix(web.Engines.Node, ">=")
	docnumbers.In(t, "guide/getting-started.md", "You need Go {} and Node {}, or newer versions.", language[1], node)
	docnumbers.In(t, "../README.md", "Go {} and Node {} are all it takes.", language[1], node)
}
