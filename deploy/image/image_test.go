//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain also runs this binary as the process that executes the entrypoint.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == enterCommand {
		fmt.Fprintln(os.Stderr, enter(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const ceiling = time.Minute

// requirePrograms skips a test if one of the programs is missing. If SOJOURN_TEST_REQUIRE contains image, the test
// fails instead.
func requirePrograms(t *testing.T, programs ...string) {
	t.Helper()
	missing := ""
	if os.Getuid() != 0 {
		missing = "root privileges"
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = p
		}
	}
	switch {
	case missing == "":
	case slices.Contains(strings.Split(os.Getenv("SOJOURN_TEST_REQUIRE"), ","), "image"):
		t.Fatalf("missing: %s", missing)
	default:
		t.Skipf("missing: %s", missing)
	}
}

// Builds the image with Debian twice, which takes minutes and downloads Debian. "make image" runs it.
func TestImageWithDebian(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("SOJOURN_TEST_REQUIRE"), ","), "image") {
		t.Skip("SOJOURN_TEST_REQUIRE does not name image: make image")
	}
	requirePrograms(t, "mmdebstrap", "nsenter")
	root, m, size := buildTwice(t, debian)
	t.Logf("%.1f MB compressed", float64(size)/1e6)
	if size > 60e6 {
		t.Errorf("got an image of %d bytes, want at most 60 MB", size)
	}
	for _, file := range []string{"etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/Europe/Berlin"} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Size() == 0 {
			t.Errorf("the image has no %s: %v", file, err)
		}
	}
	serve(t, root, m)
}

// Runs the instructions of the Dockerfile on a small root file system with programs of this machine, without apt and
// Debian packages.
func TestImageWithProgramsOfThisMachine(t *testing.T) {
	requirePrograms(t, "nsenter", "useradd", "groupadd", "ldd")
	root, m, size := buildTwice(t, local)
	// The test of the whole image measures the size with Debian. "make build" limits the binary to 50 MB, about 18 MB
	// compressed.
	if size > 22e6 {
		t.Errorf("the binary and a few programs have %d bytes compressed, want at most 22 MB of the image's 60", size)
	}
	serve(t, root, m)
}

// local creates a root with a few programs of this machine and their libraries. Its apt-get does nothing.
func local(_, root string) error {
	for _, dir := range []string{"bin", "dev", "etc", "proc", "tmp", "usr/bin", "usr/local/bin", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	libraries := regexp.MustCompile(`(/\S+) \(0x`)
	for _, name := range []string{"sh", "bash", "env", "groupadd", "useradd", "install", "rm", "ln", "sleep"} {
		from, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		linked, err := exec.Command("ldd", from).Output()
		if err != nil {
			return err
		}
		files := map[string]string{from: "usr/bin/" + name}
		if name == "sh" || name == "bash" {
			files[from] = "bin/" + name
		}
		for _, l := range libraries.FindAllStringSubmatch(string(linked), -1) {
			files[l[1]] = l[1]
		}
		for from, to := range files {
			raw, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			to = filepath.Join(root, to)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, raw, 0o755)); err != nil {
				return err
			}
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\n",
		"etc/shadow":  "root:*:1:0:99999:7:::\n",
		"etc/gshadow": "root:*::\n", "etc/resolv.conf": "", "usr/bin/apt-get": "#!/bin/sh\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n", "etc/hosts": "127.0.0.1 localhost\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	null := filepath.Join(root, "dev/null")
	return errors.Join(unix.Mknod(null, unix.S_IFCHR, int(unix.Mkdev(1, 3))), os.Chmod(null, 0o666))
}

// buildTwice builds the image twice and fails if the archives differ. It returns the second build.
func buildTwice(t *testing.T, base func(from, root string) error) (root string, m *image, size int) {
	t.Helper()
	var sums [2][32]byte
	var files [2]map[string]string
	for i := range sums {
		root = t.TempDir()
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if m, err = build("../..", root, base); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := pack(root, &b); err != nil {
			t.Fatal(err)
		}
		sums[i], size = sha256.Sum256(b.Bytes()), b.Len()
		files[i] = digests(t, root)
	}
	if sums[0] == sums[1] {
		return root, m, size
	}
	for name, sum := range files[0] {
		if files[1][name] != sum {
			t.Errorf("%s differs between two builds", name)
		}
	}
	t.Fatal("the image built twice has different bytes")
	return "", nil, 0
}

func digests(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root)] = fmt.Sprintf("%x", sha256.Sum256(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// container is a running entrypoint.
type container struct {
	t     *testing.T
	m     *image
	c     *exec.Cmd
	log   *bytes.Buffer // may be read after ended is closed
	ended chan struct{}
	err   error
}

func start(t *testing.T, root, data string, m *image) *container {
	t.Helper()
	r := &container{t: t, m: m, c: m.contained(root, data), log: &bytes.Buffer{}, ended: make(chan struct{})}
	r.c.Stdout, r.c.Stderr = r.log, r.log
	if err := r.c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.c.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("the container wrote:\n%s", r.log)
		}
	})
	r.healthy()
	return r
}

// exec runs a command in the container and returns its output.
func (r *container) exec(command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), ceiling)
	defer cancel()
	out, err := r.m.execIn(ctx, r.c.Process.Pid, command...).CombinedOutput()
	return string(out), err
}

// sojourn runs a command of the binary in PATH and fails the test if the command fails.
func (r *container) sojourn(args ...string) string {
	r.t.Helper()
	out, err := r.exec(append([]string{"sojourn"}, args...)...)
	if err != nil {
		r.t.Fatalf("sojourn %q: %v\n%s", args, err, out)
	}
	return out
}

// healthy waits until the HEALTHCHECK command succeeds.
func (r *container) healthy() {
	r.t.Helper()
	for deadline := time.Now().Add(ceiling); ; {
		out, err := r.exec(r.m.healthcheck...)
		if err == nil {
			return
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the container ended: %v", r.err)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("not healthy: %v\n%s", err, out)
		}
	}
}

// end sends a signal to process 1 and returns the error of its exit.
func (r *container) end(by syscall.Signal) error {
	_ = r.c.Process.Signal(by)
	<-r.ended
	return r.err
}

// serve runs the entrypoint in the root: app and worker on SQLite, as the image's user, with all data in the volume.
func serve(t *testing.T, root string, m *image) {
	if m.user == "" || strings.HasPrefix(m.user, "0") || strings.HasPrefix(m.user, "root") {
		t.Fatalf("the image's user is %q", m.user)
	}
	data := t.TempDir()
	uid, gid, err := owner(m.user)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(data, uid, gid); err != nil {
		t.Fatal(err)
	}
	// so that the user of the image can traverse the mounted path
	for dir := data; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	r := start(t, root, data, m)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.c.Process.Pid))
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", uid)) {
		t.Errorf("process 1 does not run as %d: %v\n%s", uid, err, status)
	}
	out := r.sojourn("workflow", "start", "tour.greeting", "--id", "done", "--input", `["world"]`, "--wait")
	if !strings.Contains(out, "world") {
		t.Errorf("the sample printed %q", out)
	}
	r.sojourn("workflow", "start", "tour.approval", "--id", "open")
	if err := r.end(syscall.SIGKILL); err == nil {
		t.Error("a container that was killed ended well")
	}
	if _, err := os.Stat(filepath.Join(data, "sojourn.db")); err != nil {
		t.Errorf("the volume has no database: %v", err)
	}

	r = start(t, root, data, m)
	if out := r.sojourn("workflow", "result", "done"); !strings.Contains(out, "world") {
		t.Errorf("after the kill the sample's result is %q", out)
	}
	r.sojourn("workflow", "signal", "open", "approve", "--input", `["Ada"]`)
	if out := r.sojourn("workflow", "result", "open"); !strings.Contains(out, "approved by Ada") {
		t.Errorf("the run that was open at the kill has the result %q", out)
	}
	if err := r.end(syscall.SIGTERM); err != nil {
		t.Errorf("the stopped container exited with %v", err)
	}
	if rest, err := filepath.Glob(filepath.Join(root, "data", "*")); err != nil || len(rest) > 0 {
		t.Errorf("files of the image were changed: %q, %v", rest, err)
	}
}
