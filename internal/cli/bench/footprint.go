package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// footprint starts the program as an app on an existing database, ops times in sequence. It measures the time until the
// app is ready and its memory a moment later.
func footprint(ctx context.Context, n *node, ops int) (s sample, err error) {
	if len(n.program) == 0 {
		return s, errors.New("no program to start was given")
	}
	binary, err := os.Stat(n.program[0])
	if err != nil {
		return s, err
	}
	s.size = binary.Size()
	began := time.Now()
	for range ops {
		ready, resident, err := n.startProgram(ctx)
		if err != nil {
			return s, err
		}
		s.each, s.resident = append(s.each, ready), max(s.resident, resident)
	}
	s.elapsed = time.Since(began)
	return s, nil
}

// startProgram starts the program once, always on the same database file, and ends it.
func (n *node) startProgram(ctx context.Context) (ready time.Duration, memory int64, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return 0, 0, err
	}
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, n.program[0], n.program[1:]...)
	c.Args = append(c.Args, "--addr", addr, "--auth", "none", "--data-dir", filepath.Join(n.dir, "footprint"))
	c.Stdout, c.Stderr = &stderr, &stderr
	began := time.Now()
	if err := c.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	defer func() {
		if e := c.Process.Signal(syscall.SIGTERM); e != nil { // the process has ended
			return
		}
		if e := <-ended; e != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s", e, stderr.String()))
		}
	}()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return 0, 0, err
	}
	for ; ; time.Sleep(500 * time.Microsecond) {
		select {
		case e := <-ended:
			return 0, 0, fmt.Errorf("the program ended at once: %w: %s", e, stderr.String())
		default:
		}
		if time.Since(began) > time.Minute {
			return 0, 0, errors.New("the program was not ready within a minute")
		}
		r, e := client.Do(asked)
		if e != nil {
			continue // the app does not listen yet
		}
		_ = r.Body.Close()
		if r.StatusCode == http.StatusOK {
			ready = time.Since(began)
			break
		}
	}
	settle := 2 * time.Second
	if n.quick {
		settle = 100 * time.Millisecond
	}
	if err := pause(ctx, settle); err != nil {
		return ready, 0, err
	}
	memory, err = resident(c.Process.Pid)
	return ready, memory, err
}

func binaryMegabytes(s sample) float64 { return float64(s.size) / 1e6 }
