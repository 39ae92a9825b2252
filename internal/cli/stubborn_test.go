package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// stubborn are handlers that, in their first call, start a daemon in a new session, stop their supervisor and then
// ignore signals and never return.
var stubborn = map[string][2]string{
	"node": {"stubborn.mjs", `import { spawn } from 'node:child_process';
import { appendFileSync, existsSync } from 'node:fs';
export function main(dir) {
	if (existsSync(dir + '/pids')) return 'done';
	const daemon = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' });
	daemon.unref();
	process.on('SIGTERM', () => {});
	process.kill(process.ppid, 'SIGSTOP');
	appendFileSync(dir + '/pids', process.pid + ' ' + process.ppid + ' ' + daemon.pid + '\n');
	return new Promise(() => setInterval(() => {}, 1000));
}`},
	"python3": {"stubborn.py", `import os, signal, subprocess, time
def main(dir, ctx):
	if os.path.exists(dir + "/pids"):
		return "done"
	daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
	os.kill(os.getppid(), signal.SIGSTOP)
	with open(dir + "/pids", "a") as f:
		f.write("%d %d %d\n" % (os.getpid(), os.getppid(), daemon.pid))
	while True:
		try:
			time.sleep(600)
		except BaseException:
			pass
`},
}

// A worker whose handler stopped its supervisor ends within the drain timeout, and all processes of the handler end
// after it, also if the worker is killed. Where executors may not signal their supervisor this cannot occur, so the
// test allows it there.
func TestAHandlerThatStopsItsSupervisorDoesNotDelayTheWorker(t *testing.T) {
	t.Parallel()
	for program, handler := range stubborn {
		for _, end := range []string{"drained", "killed"} {
			t.Run(program+"/"+end, func(t *testing.T) {
				t.Parallel()
				if _, err := exec.LookPath(program); err != nil {
					t.Skip(program + " is not on this machine")
				}
				const deadline = 10 * time.Second
				f, dir := newFleet(t), t.TempDir()
				p := &plant{f, f.startApp(nil), map[string]*process{}}
				handlers := filepath.Join(t.TempDir(), "handlers")
				if err := errors.Join(
					os.Mkdir(handlers, 0o755), os.WriteFile(filepath.Join(handlers, handler[0]), []byte(handler[1]), 0o644),
				); err != nil {
					t.Fatal(err)
				}
				settings := env{
					"SOJOURN_HANDLERS": handlers, "SOJOURN_ISOLATION": "process", "SOJOURN_ISOLATION_MIN_LEVEL": "process",
					"SOJOURN_EXECUTOR_UIDS": "none", "SOJOURN_EXECUTOR_CGROUP": "none", "SOJOURN_EGRESS": "open",
					"SOJOURN_TOKEN": f.client.token, "SOJOURN_DRAIN_TIMEOUT": deadline.String(),
				}
				p.begin("A", settings)
				f.sojourn("activity", "run", "stubborn", fmt.Sprintf("[%q]", dir), "--id", "one", "--session", "s", "--detach")
				var pids []int
				until(t, "the handler has done it", func() bool {
					pids = processes(t, filepath.Join(dir, "pids"))
					return len(pids) == 3
				})
				asked := time.Now()
				if end == "drained" {
					code := p.node["A"].terminate()
					// Normally the worker ends a second or two before the deadline.
					if took := time.Since(asked); code != 0 || took > deadline+300*time.Millisecond {
						t.Errorf("the worker ended with %d after %s, of %s", code, took, deadline)
					}
				} else {
					p.node["A"].kill()
				}
				for i, what := range []string{"the executor", "its supervisor", "the daemon"} {
					until(t, what+" is gone", func() bool { return hasExited(pids[i]) })
				}
				t.Logf("all is over after %s", time.Since(asked))
				p.begin("B", settings)
				if got := f.sojourn("workflow", "result", "one"); got != `"done"` {
					t.Errorf("on another worker it gives %s", got)
				}
			})
		}
	}
}

// hasExited reports whether a process has ended. A zombie counts as ended.
func hasExited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(rest, []byte("Z")) || bytes.HasPrefix(rest, []byte("X"))
}
