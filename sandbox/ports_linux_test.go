package sandbox_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// openPorts lists the ports of a process: its sockets that listen or receive datagrams.
func openPorts(t *testing.T, pid int) (ports []string) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var inodes []string
	for _, e := range entries {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if inode, is := strings.CutPrefix(target, "socket:["); err == nil && is {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
		list, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, kind))
		if err != nil {
			continue // this machine does not have the file
		}
		for lines := bufio.NewScanner(list); lines.Scan(); {
			at := strings.Fields(lines.Text()) // sl, local address, remote address, state, …, the tenth is the inode
			if len(at) > 9 && slices.Contains(inodes, at[9]) && (at[3] == "0A" || strings.HasPrefix(kind, "udp")) {
				ports = append(ports, kind+" "+at[1])
			}
		}
		_ = list.Close()
	}
	return ports
}

// below returns a process and all its descendants.
func below(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents := map[int]int{}
	for _, file := range stats {
		var child int
		if _, err := fmt.Sscanf(file, "/proc/%d/stat", &child); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(file); err == nil { // otherwise it has ended
			var above int
			var state string
			rest := string(raw[strings.LastIndex(string(raw), ")")+1:])
			if _, err := fmt.Sscan(rest, &state, &above); err == nil {
				parents[child] = above
			}
		}
	}
	for i := 0; i < len(all); i++ {
		for child, above := range parents {
			if above == all[i] {
				all = append(all, child)
			}
		}
	}
	return all
}

// Executors and supervisors communicate with the worker through inherited files. A TCP port could collide with the
// ephemeral port of another process's connection.
func TestExecutorsHaveNoPorts(t *testing.T) {
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := openPorts(t, os.Getpid()); len(got) == 0 {
		t.Fatal("not even the port of this test is seen")
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
		supervisorPID := parent(t, int(about["pid"].(int64)))
		if supervisorPID == os.Getpid() {
			t.Fatal("the executor has no supervisor")
		}
		all := below(t, supervisorPID)
		if !slices.Contains(all, int(about["pid"].(int64))) {
			t.Fatalf("the executor is not among %v", all)
		}
		for _, pid := range all {
			if got := openPorts(t, pid); len(got) > 0 {
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				t.Errorf("process %d, %s, has %v", pid, strings.TrimSpace(string(name)), got)
			}
		}
	})
}
