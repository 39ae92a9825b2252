// Package compose validates the compose files with the loader of Docker Compose. It is a separate module, so that the
// product does not depend on the loader.
package compose

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// load loads a file like "docker compose": schema, variables, extensions, dependencies.
func load(t *testing.T, path string, env ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{path}, cli.WithEnv(env), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return cli.ProjectFromOptions(context.Background(), o)
}

func TestComposeFilesStateTheirPurpose(t *testing.T) {
	files, err := filepath.Glob("../../deploy/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("got %q, %v", files, err)
	}
	replicas := map[string]map[string]int{
		"compose.yaml": {"sojourn": 1},
		"fleet.yaml":   {"postgres": 1, "migrate": 1, "app": 2, "proxy": 1, "worker": 3},
	}
	for _, path := range files {
		if _, err := load(t, path); err == nil || !strings.Contains(err.Error(), "SOJOURN_TOKEN") {
			t.Errorf("%s without a token: got %v", path, err)
		}
		p, err := load(t, path, "SOJOURN_TOKEN=secret")
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		want := replicas[filepath.Base(path)]
		if names := p.ServiceNames(); len(names) != len(want) {
			t.Errorf("%s has the services %q", path, names)
		}
		for name, s := range p.Services {
			if s.GetScale() != want[name] {
				t.Errorf("%s: %d of %s, want %d", path, s.GetScale(), name, want[name])
			}
			if s.ContainerName != "" || want[name] > 1 && len(s.Ports) > 0 {
				t.Errorf("%s: %s cannot be scaled", path, name)
			}
			for _, port := range s.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("%s: %s is open to every network", path, name)
				}
			}
			if s.Image == "sojourn" {
				ours(t, path, s)
			}
		}
	}
}

// ours checks a service of the product's image: it may drain, and no setting of it is misspelled.
func ours(t *testing.T, path string, s types.ServiceConfig) {
	t.Helper()
	if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) != 40*time.Second {
		t.Errorf("%s: %s is killed in its drain", path, s.Name)
	}
	if !s.ReadOnly || !slices.Contains(s.Tmpfs, "/tmp") {
		t.Errorf("%s: the root of %s can be written to", path, s.Name)
	}
	for name := range s.Environment {
		if !slices.Contains(settings(t), name) {
			t.Errorf("%s: %s sets %s, which is no setting", path, s.Name, name)
		}
	}
}

// settings are the variables of the product's table of settings.
func settings(t *testing.T) (all []string) {
	t.Helper()
	table, err := os.ReadFile("../../internal/config/settings.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`name: "([a-z-]+)"`).FindAllStringSubmatch(string(table), -1) {
		all = append(all, "SOJOURN_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_")))
	}
	if !slices.Contains(all, "SOJOURN_TOKEN") || slices.Contains(all, "SOJOURN_TOKENS") {
		t.Fatalf("no table of settings: %q", all)
	}
	return all
}
