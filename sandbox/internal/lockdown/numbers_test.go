package lockdown

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestNumbersAreThoseOfBothArchitectures holds the numbers of both, on whichever the test runs, against the tables that
// x/sys has of the kernel's headers.
func TestNumbersAreThoseOfBothArchitectures(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)$`)
	all := append(append([]number(nil), refused...),
		callClone, callClone3, callSocket, callSocketpair, callSendto, callSendmsg, callSendmmsg, callIoctl, callPrlimit,
		callTruncate, callPrctl, callMemfd, callSecret, callSetsockopt, callFcntl, callPriority,
		callIOPriority,
	)
	all = append(all, scheduling...)
	for arch, a := range architectures {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		table := map[string]int{}
		for _, found := range entry.FindAllStringSubmatch(string(source), -1) {
			table[strings.ToLower(found[1])], _ = strconv.Atoi(found[2])
		}
		last := 0
		for _, number := range table {
			if number < 512 { // above are x32's
				last = max(last, number)
			}
		}
		if last != newest {
			t.Errorf("the newest call on %s is %d, and %d the last that was thought about", arch, last, newest)
		}
		for _, n := range all {
			want, there := table[n.name]
			if !there {
				want = absent
			}
			if got := a.of(n); got != want {
				t.Errorf("%s on %s: %d, want %d", n.name, arch, got, want)
			}
		}
	}
}
