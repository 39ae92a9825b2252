// Summary reads the output of one or more runs of "go test -json" and prints it like plain "go test": one line per
// package, and the whole output of a failed test. It ends with the skipped tests and their reasons, the slowest tests,
// and one line with the counts. It exits 1 when a test or a build failed.
//
// If a file is named, Summary writes the failed tests to it, "package test" per line, so that they can be repeated. The
// file is empty if something other than a test failed: a build, a process, or a test that did not run.
//
// SOJOURN_TEST_REQUIRE lists, comma separated, what must be installed ("postgres,chromium,node"): a test that skips and
// names one of these in its reason has failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type result struct {
	name    string
	elapsed float64
	output  []string
}

// slowest is the number of slow tests, without subtests, in the report.
const slowest = 40

func main() {
	var (
		output         = map[string][]string{} // by package and test, until its end is known
		failures       = map[string]int{}      // failed tests by package
		slow, skipped  []result
		again          []string // the failed tests, as "package test"
		beyond         bool     // something failed that is not a test
		passed, failed int
		required       = strings.FieldsFunc(os.Getenv("SOJOURN_TEST_REQUIRE"), func(r rune) bool {
			return r == ',' || r == ' '
		})
	)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Action == "" {
			fmt.Println(in.Text())
			continue
		}
		key := e.Package + e.ImportPath + " " + e.Test
		if e.Action == "output" || e.Action == "build-output" {
			if !strings.HasPrefix(e.Output, "=== ") {
				output[key] = append(output[key], e.Output)
			}
			continue
		}
		r := result{strings.TrimSpace(e.Package + " " + e.Test), e.Elapsed, output[key]}
		switch {
		case e.Action == "build-fail":
			fmt.Print(strings.Join(r.output, ""))
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			fmt.Print(strings.Join(lines(r.output, e.Action == "fail"), ""))
			if e.Action == "fail" {
				for key, rest := range output { // a test that never ended: its process died
					if test, ok := strings.CutPrefix(key, e.Package+" "); ok && test != "" {
						fmt.Printf("--- DIED: %s\n%s", test, strings.Join(rest, ""))
						failures[e.Package]++
						beyond = true
						delete(output, key)
					}
				}
				beyond = beyond || failures[e.Package] == 0
				failed += max(1, failures[e.Package]) // a build or a TestMain fails without any test
			}
		case e.Action == "pass":
			passed++
			if !strings.Contains(e.Test, "/") {
				slow = append(slow, r)
			}
		case e.Action == "skip":
			reason := strings.ToLower(strings.Join(r.output, ""))
			if slices.ContainsFunc(required, func(word string) bool { return strings.Contains(reason, strings.ToLower(word)) }) {
				failed++
				beyond = true
				fmt.Printf(
					"%s    skipped, though SOJOURN_TEST_REQUIRE is %s\n", strings.Join(r.output, ""), strings.Join(required, ","),
				)
			} else {
				skipped = append(skipped, r)
			}
		case e.Action == "fail":
			failures[e.Package]++
			if !strings.Contains(e.Test, "/") {
				slow = append(slow, r)
				again = append(again, e.Package+" "+e.Test)
			}
			fmt.Print(strings.Join(r.output, ""))
		default:
			continue // run, pause, cont, start: the test goes on
		}
		delete(output, key)
	}
	if err := in.Err(); err != nil {
		fmt.Println("summary:", err)
		failed++
		beyond = true
	}
	report(slow, skipped)
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", passed, failed, len(skipped))
	if len(os.Args) > 1 && !beyond && len(again) > 0 {
		if err := os.WriteFile(os.Args[1], []byte(strings.Join(again, "\n")+"\n"), 0o600); err != nil {
			fmt.Println("summary:", err)
		}
	}
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// lines returns the part of a package's output that plain "go test" shows: its last line, or all of it if the package
// failed.
func lines(out []string, all bool) []string {
	if all {
		return out
	}
	return slices.DeleteFunc(out, func(l string) bool {
		return l == "PASS\n" || strings.HasPrefix(l, "coverage:") || strings.Contains(l, "[no test files]")
	})
}

func report(slow, skipped []result) {
	for _, r := range skipped {
		reason := ""
		for _, l := range r.output {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "---") {
				reason = l
			}
		}
		fmt.Printf("skipped %s: %s\n", r.name, reason)
	}
	slices.SortStableFunc(slow, func(a, b result) int { return int(1000 * (b.elapsed - a.elapsed)) })
	fmt.Println("\nthe slowest tests:")
	for _, r := range slow[:min(slowest, len(slow))] {
		fmt.Printf("%8.2fs  %s\n", r.elapsed, strings.ReplaceAll(r.name, "github.com/sojourn-run/sojourn", "."))
	}
}
