package sojourn_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// firstNamed is the first migration that records which releases can serve the schema. Older binaries do not check this.
const firstNamed = 10

var reader = regexp.MustCompile(
	`(?m)^INSERT INTO schema_versions \(version, release, min_reader\) VALUES \((\d+), '(\d+\.\d+\.\d+)', (\d+)\);$`,
)

// nameOf is the release and the oldest reader that a migration's text names.
func nameOf(version int, text string) (string, error) {
	all := reader.FindAllStringSubmatch(text, -1)
	if len(all) != 1 {
		return "",
			fmt.Errorf("has %d lines INSERT INTO schema_versions (version, release, min_reader) VALUES (%d, 'X.Y.Z', OLDEST); want one: "+
				"the release that brings it, and the oldest schema whose binaries may serve it", len(all), version)
	}
	own, _ := strconv.Atoi(all[0][1])
	oldest, _ := strconv.Atoi(all[0][3])
	if own != version {
		return "", fmt.Errorf("names version %d", own)
	}
	if oldest < firstNamed-1 || oldest > version {
		return "", fmt.Errorf("is served from schema %d on, which must be %d to %d", oldest, firstNamed-1, version)
	}
	return all[0][2] + " " + all[0][3], nil
}

// An older binary reads in the database whether it may serve a newer schema. Therefore every migration must record
// this, and equally for both databases.
func TestEveryMigrationNamesItsOldestReader(t *testing.T) {
	files, err := filepath.Glob("app/store/sqlite/migrations/*.sql")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d migrations: %v", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		version, err := strconv.Atoi(name[:5])
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if version < firstNamed {
			continue
		}
		named := map[string]bool{}
		for _, database := range []string{"sqlite", "postgres"} {
			path := filepath.Join("app/store", database, "migrations", name)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
				continue
			}
			oldest, err := nameOf(version, string(raw))
			if err != nil {
				t.Errorf("%s %v", path, err)
			}
			named[oldest] = true
		}
		if len(named) > 1 {
			t.Errorf("%s names differently in the two databases: %v", name, named)
		}
	}
}

func TestAMigrationThatNamesNoReaderIsCaught(t *testing.T) {
	const right = "CREATE TABLE x (y TEXT);\nINSERT INTO schema_versions (version, release, min_reader) VALUES (12, '0.2.0', 11);\n"
	if got, err := nameOf(12, right); err != nil || got != "0.2.0 11" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, wrong := range map[string]string{
		"none":          "CREATE TABLE x (y TEXT);",
		"a comment":     "-- INSERT INTO schema_versions (version, release, min_reader) VALUES (12, '0.2.0', 11);",
		"another's":     "INSERT INTO schema_versions (version, release, min_reader) VALUES (11, '0.2.0', 11);",
		"in the future": "INSERT INTO schema_versions (version, release, min_reader) VALUES (12, '0.2.0', 13);",
		"no release":    "INSERT INTO schema_versions (version, release, min_reader) VALUES (12, 'next', 11);",
		"twice":         right + right,
	} {
		if _, err := nameOf(12, wrong); err == nil {
			t.Errorf("%s was not caught", name)
		}
	}
}
