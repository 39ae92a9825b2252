//go:build linux

// Command image builds the root file system of the Dockerfile without a container engine, by running its instructions
// in a chroot. It requires root and mmdebstrap, which installs the Debian base system.
//
//	go run ./deploy/image bin/sojourn-image.tar.gz     # docker import bin/sojourn-image.tar.gz
//
// Its test runs the entrypoint in this root file system as a container engine would, and checks the properties that the
// Dockerfile documents.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == enterCommand {
		fmt.Fprintln(os.Stderr, enter(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: image FILE.tar.gz")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	root, err := os.MkdirTemp("", "sojourn-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	if _, err := build(".", root, debian); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pack(root, f), f.Close())
}

// build creates the root file system of the image of the Dockerfile in src. base creates the content of the image that
// FROM names.
func build(src, root string, base func(from, root string) error) (*image, error) {
	text, err := os.ReadFile(filepath.Join(src, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	stages, err := parse(string(text))
	if err != nil {
		return nil, err
	}
	steps, from := final(stages)
	if err := base(from, root); err != nil {
		return nil, fmt.Errorf("FROM %s: %w", from, err)
	}
	m := &image{}
	for _, s := range steps {
		switch s.name {
		case "RUN":
			err = inside(root, s.args, m.args)
		case "COPY":
			err = install(src, root, s, stages)
		default:
			err = m.configure(s)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// debian creates the content of the image debian:VERSION-slim: the essential packages and apt, without manuals and
// translations. Like that image it creates a merged /usr directly, because the package usrmerge would install all of
// Perl.
func debian(from, root string) error {
	suite, ok := map[string]string{"debian:12-slim": "bookworm"}[from]
	if !ok {
		return errors.New("unsupported base image; supported: debian:12-slim")
	}
	archive := filepath.Join(root, "debian.tar")
	args := []string{
		"--mode=root", "--variant=essential", "--include=apt,usr-is-merged", "--quiet", "--format=tar",
		"--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
	}
	for _, path := range []string{"man", "locale", "info", "groff", "doc", "lintian", "linda"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+path+"/*")
	}
	args = append(args, "--dpkgopt=path-include=/usr/share/doc/*/copyright", suite, archive)
	for _, part := range []string{"debian SUITE", "debian SUITE-updates", "debian-security SUITE-security"} {
		part = strings.ReplaceAll(part, "SUITE", suite)
		args = append(args, "deb http://deb.debian.org/"+part+" main")
	}
	if err := run(exec.Command("mmdebstrap", args...)); err != nil {
		return err
	}
	err := run(exec.Command("tar", "--extract", "--numeric-owner", "--file", archive, "--directory", root))
	return errors.Join(err, os.Remove(archive))
}

// inside runs a shell command in the root, as RUN does.
func inside(root, command string, args []string) error {
	resolv := filepath.Join(root, "etc/resolv.conf")
	before, missing := os.ReadFile(resolv)
	if names, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		if err := os.WriteFile(resolv, names, 0o644); err != nil {
			return err
		}
	}
	c := exec.Command("/bin/sh", "-c", command)
	c.Dir = "/"
	c.Env = append([]string{"PATH=" + path, "HOME=/root"}, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	err := run(c)
	if missing != nil {
		return errors.Join(err, os.Remove(resolv))
	}
	return errors.Join(err, os.WriteFile(resolv, before, 0o644))
}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// install copies a file as COPY does: from the sources, or from the stage that builds the binary.
func install(src, root string, s step, stages []stage) error {
	words := strings.Fields(s.args)
	stage, fromStage := strings.CutPrefix(words[0], "--from=")
	if fromStage {
		words = words[1:]
	}
	if len(words) != 2 || fromStage && stage != "build" || strings.HasSuffix(words[1], "/") {
		return fmt.Errorf("%s: unsupported form of COPY; want COPY [--from=build] SOURCE FILE", s)
	}
	to := filepath.Join(root, words[1])
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	from := filepath.Join(src, words[0])
	if fromStage {
		rest, ofTree := strings.CutPrefix(words[0], "/src/")
		if !ofTree {
			return compile(src, words[0], to, stages)
		}
		from = filepath.Join(src, rest)
	}
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return os.WriteFile(to, raw, info.Mode().Perm())
}

// compile runs the command of the stage "build" that creates the file with this name, with the Go installation of this
// machine.
func compile(src, name, to string, stages []stage) error {
	for _, stage := range stages {
		for _, s := range stage.steps {
			before, after, makes := strings.Cut(s.args, " -o "+name+" ")
			if stage.name != "build" || s.name != "RUN" || !makes {
				continue
			}
			c := exec.Command("/bin/sh", "-c", before+" -o '"+to+"' "+after)
			c.Dir = src
			return run(c)
		}
	}
	return fmt.Errorf("Dockerfile: no RUN instruction of the stage \"build\" creates %s", name)
}

// run runs a command. The error contains the output of the command.
func run(c *exec.Cmd) error {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out.String())
	}
	return nil
}

// pack writes the root as a reproducible compressed archive: the entries are sorted by name and have the same time.
func pack(root string, w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return add(t, root, path, d)
	})
	return errors.Join(err, t.Close(), z.Close())
}

func add(t *tar.Writer, root, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	if filepath.Dir(name) == "dev" { // the container engine creates the devices
		return nil
	}
	if h.Name = name; d.IsDir() {
		h.Name += "/"
	}
	h.ModTime, h.AccessTime, h.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
	h.Uname, h.Gname = "", "" // user and group names are those of this machine; the numbers are those of the image
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return errors.Join(err, f.Close())
}

// enterCommand is the first argument with which this program becomes the process of a container.
const enterCommand = "enter"

// contained returns a command that becomes process 1 of the image at root, in new namespaces: with the image's user,
// directory and environment, with its volume at data, everything else read-only, and with an empty network namespace.
func (m *image) contained(root, data string) *exec.Cmd {
	args := append([]string{enterCommand, root, data, m.volume, m.dir, m.user}, m.entrypoint...)
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append([]string{"PATH=" + path}, m.env...)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS,
	}
	return c
}

// execIn returns a command that runs in the namespaces of a container, like docker exec and HEALTHCHECK. pid is the
// host PID of the container's process 1.
func (m *image) execIn(ctx context.Context, pid int, command ...string) *exec.Cmd {
	uid, gid, _ := strings.Cut(m.user, ":")
	c := exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", strconv.Itoa(pid), "--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd",
		"--setuid", uid, "--setgid", gid, "--",
	}, command...)...)
	c.Env = append([]string{"PATH=" + path}, m.env...)
	c.WaitDelay = time.Second // a cancelled context kills nsenter, but not its children
	return c
}

// enter is the process that contained starts; it returns only if it cannot execute the command.
func enter(args []string) error {
	root, data, volume, dir, user, command := args[0], args[1], args[2], args[3], args[4], args[5:]
	uid, gid, err := owner(user)
	if err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return err
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{"", "/", "", unix.MS_PRIVATE | unix.MS_REC},
		{root, root, "", unix.MS_BIND},
		{"proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{data, filepath.Join(root, volume), "", unix.MS_BIND},
		{"", root, "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{"tmp", filepath.Join(root, "tmp"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := unix.Mount(m.from, m.to, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %q at %s: %w", m.from, m.to, err)
		}
	}
	return errors.Join(
		unix.Chroot(root), unix.Chdir(dir), unix.Setgroups(nil), unix.Setgid(gid), unix.Setuid(uid),
		unix.Exec(command[0], command, os.Environ()),
	)
}

// owner parses UID:GID.
func owner(user string) (uid, gid int, err error) {
	a, b, _ := strings.Cut(user, ":")
	uid, err = strconv.Atoi(a)
	if err != nil {
		return 0, 0, fmt.Errorf("USER %s: want UID:GID as numbers", user)
	}
	if gid, err = strconv.Atoi(b); err != nil {
		return 0, 0, fmt.Errorf("USER %s: want UID:GID as numbers", user)
	}
	return uid, gid, nil
}

// loopback enables the only interface of a new network namespace.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return errors.Join(unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r), unix.Close(s))
}
