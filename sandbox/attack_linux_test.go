package sandbox_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

func TestEnvironmentHoldsNoSecrets(t *testing.T) {
	t.Setenv("SOJOURN_TOKEN", "sjn_secret")
	everyRuntime(t, sandbox.Options{Environment: []string{"REGION=eu"}}, func(t *testing.T, b *Bench) {
		env := Got[map[string]string](t, b.Run(b.Call("environ")))
		for name, value := range env {
			if !slices.Contains([]string{
				"PATH", "HOME", "TMPDIR", "LANG", "TZ", "REGION", "GOMEMLIMIT", "GOMAXPROCS", "HTTP_PROXY", "HTTPS_PROXY",
				"http_proxy", "https_proxy", "NO_PROXY", "no_proxy", "SOJOURN_EGRESS_SOCKET",
			}, name) || strings.Contains(value, "secret") {
				t.Errorf("%s=%s", name, value)
			}
		}
		if env["REGION"] != "eu" || env["HOME"] == "" || env["HOME"] != env["TMPDIR"] {
			t.Errorf("got %v", env)
		}
	})
}

func TestExecutorHasNoPrivilegesAndBoundedResources(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		pid := Got[int](t, b.Run(b.Call("pid")))
		got := map[string]string{}
		for key, file := range map[string]string{"status": "status", "limits": "limits"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Fatal(err)
			}
			got[key] = strings.TrimSpace(string(text))
		}
		for _, want := range []string{
			"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
		} {
			if want == "CapBnd:\t0000000000000000" && os.Geteuid() != 0 {
				continue // only root may lower the bounding set, and with "no new privileges" it has no effect
			}
			if !strings.Contains(got["status"], want) {
				t.Errorf("status lacks %q:\n%s", want, got["status"])
			}
		}
		for what, want := range map[string][]string{
			"Max core file size": {"0", "0"}, "Max open files": {"256", "256"}, "Max file size": {"268435456", "268435456"},
		} {
			_, rest, _ := strings.Cut(got["limits"], what)
			if fields := strings.Fields(rest); len(fields) < 2 || !slices.Equal(fields[:2], want) {
				t.Errorf("%s: %v, want %v", what, fields[:min(2, len(fields))], want)
			}
		}
		// The out-of-memory killer must choose the executor first, then its supervisor, and the worker last. The
		// supervisor sets the score of the executor when it starts it.
		score := func(pid int) string {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(text))
		}
		Eventually(t, "oom_score_adj is 800, of the supervisor 700", func() bool {
			return score(pid) == "800" && score(parent(t, pid)) == "700"
		})
	})
}

func TestDescriptorsOfTheWorkerDoNotLeak(t *testing.T) {
	leak, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(secret, unix.O_RDONLY, 0) // without close-on-exec, on purpose
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		pid := Got[int](t, b.Run(In("s", 1, b.Call("pid"))))
		for _, f := range descriptors(t, pid) {
			if strings.Contains(f, "secret") {
				t.Errorf("the executor has %s", f)
			}
			if b.Runtime == sandbox.RuntimePython && !slices.Contains([]string{"0", "1", "2", "3"}, strings.Fields(f)[0]) &&
				f != "4 /memfd:sojourn-room (deleted)" {
				t.Errorf("the executor has %s", f)
			}
		}
		for _, f := range descriptors(t, parent(t, pid)) {
			if strings.Contains(f, "secret") {
				t.Errorf("the supervisor has %s", f)
			}
		}
	})
}

// descriptors lists the descriptors of a process by number and target.
func descriptors(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			all = append(all, e.Name()+" "+link)
		}
	}
	return all
}

// parent returns the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ppid int
	if _, err := fmt.Sscanf(string(stat[strings.LastIndexByte(string(stat), ')')+3:]), "%d", &ppid); err != nil {
		t.Fatal(err)
	}
	return ppid
}

func TestExecutorCannotReachIntoTheWorker(t *testing.T) {
	b := python(t, sandbox.Options{})
	for name, got := range Got[map[string]string](t, b.Run(b.Call("attack", os.Getpid()))) {
		if name == "oom_score" && !canRaiseLimits() {
			continue // then another process cannot determine how far it can be lowered
		}
		if got != "held" {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// canRaiseLimits reports whether this process has CAP_SYS_RESOURCE, which it needs to lower its own OOM score.
func canRaiseLimits() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestArtefactsDoNotLeadOutOfTheScratchFolder(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		b.Run(In("s", 1, b.Call("leave_links")))
		s := sandbox.Session{ID: "s", Epoch: 1}
		for _, name := range []string{"result.txt", "root", "root/etc/passwd", "../", "/etc/passwd", ".", "missing"} {
			if f, err := b.OpenArtefact(s, b.Runtime, name); err == nil {
				f.Close()
				t.Errorf("%s was opened", name)
			}
		}
		f, err := b.OpenArtefact(s, b.Runtime, "plain.txt")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if text, err := io.ReadAll(f); string(text) != "plain" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}
