package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// kilobyte is the input and the result of every step.
var kilobyte = strings.Repeat("x", 1000)

// system has the operations of a peer's process.
type system struct {
	version string
	do      func(ctx context.Context, work, in string) (string, error)
	close   func()
}

// many runs n operations, atOnce at a time, and returns the total duration.
func many(ctx context.Context, n, atOnce int, do func(context.Context) error) (time.Duration, error) {
	var next atomic.Int64
	var group sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	for range min(n, atOnce) {
		group.Go(func() {
			for next.Add(1) <= int64(n) && ctx.Err() == nil {
				if err := do(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return time.Since(start), context.Cause(ctx)
}

// ticks is USER_HZ, the unit of times in /proc/PID/stat: 100 per second on Linux.
const ticks = 100

// cpuOf returns the processor time of a process and its descendants, including ended ones.
func cpuOf(root int) (time.Duration, error) {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	stats := make([]string, 0, len(entries))
	for _, e := range entries {
		if raw, err := os.ReadFile(e); err == nil { // other processes have ended in the meantime
			stats = append(stats, string(raw))
		}
	}
	return cpuAmong(root, stats)
}

// cpuAmong computes the result of cpuOf from the contents of /proc/PID/stat of all processes.
func cpuAmong(root int, stats []string) (time.Duration, error) {
	children, used := map[int][]int{}, map[int]int{}
	for _, s := range stats {
		open, shut := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')') // the name may contain spaces and brackets
		if open < 0 || shut < 0 {
			return 0, fmt.Errorf("invalid /proc/PID/stat: %q", s)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(s[:open]))
		if err != nil {
			return 0, err
		}
		f := strings.Fields(s[shut+1:])
		if len(f) < 15 {
			return 0, fmt.Errorf("invalid /proc/PID/stat: %q", s)
		}
		parent, err := strconv.Atoi(f[1])
		if err != nil {
			return 0, err
		}
		children[parent] = append(children[parent], pid)
		for _, field := range f[11:15] { // utime, stime, cutime, cstime
			v, err := strconv.Atoi(field)
			if err != nil {
				return 0, err
			}
			used[pid] += v
		}
	}
	if _, there := used[root]; !there {
		return 0, errors.New("the process has ended")
	}
	sum := 0
	for todo := []int{root}; len(todo) > 0; {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		sum += used[pid]
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// describeServer returns the PID of the postmaster and a description of the server's settings.
func describeServer(server string) (postmaster int, about string, err error) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = c.Close(ctx) }()
	var backend int
	var version, fsync, commit, pages, buffers string
	if err := c.QueryRow(
		ctx, "SELECT pg_backend_pid(), current_setting('server_version'), current_setting('fsync'), "+
			"current_setting('synchronous_commit'), current_setting('full_page_writes'), current_setting('shared_buffers')",
	).Scan(&backend, &version, &fsync, &commit, &pages, &buffers); err != nil {
		return 0, "", err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", backend))
	if err != nil {
		return 0, "", fmt.Errorf("the database server must run on this machine: %w", err)
	}
	f := strings.Fields(string(raw)[strings.LastIndexByte(string(raw), ')')+1:])
	if postmaster, err = strconv.Atoi(f[1]); err != nil {
		return 0, "", err
	}
	return postmaster, fmt.Sprintf(
		"PostgreSQL %s, fsync=%s, synchronous_commit=%s, full_page_writes=%s, shared_buffers=%s",
		version, fsync, commit, pages, buffers,
	), nil
}

// newDatabase creates an empty database and returns its URL.
func newDatabase(server, name string) (string, error) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close(ctx) }()
	for _, s := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if _, err := c.Exec(ctx, s); err != nil {
			return "", err
		}
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}
