// Package sandboxtest is the test suite for executors of every language, with its handlers.
package sandboxtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/internal/executor"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// NativeActivity is the name of the Go handler that [Handlers] registers.
const NativeActivity = "sandboxtest.native"

// Handlers registers the suite's behaviours in Go; the call's entry selects one. Pass it to sandbox.Main.
func Handlers(all executor.Handlers) { all[NativeActivity] = native }

func native(ctx context.Context, inv executor.Invocation) ([]byte, error) {
	b := behaviours[inv.Entry]
	if b == nil {
		return nil, fmt.Errorf("no behaviour %q", inv.Entry)
	}
	args, err := payload.Args(payload.Payload{Blob: string(inv.Input)})
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	var arg payload.Payload
	if len(args) > 0 {
		arg = args[0]
	}
	value, err := b(ctx, executor.From(ctx), inv, arg)
	if err != nil {
		return nil, err
	}
	out, err := payload.Encode(value)
	return []byte(out.Blob), err
}

type behaviour = func(ctx context.Context, c *executor.Call, inv executor.Invocation, arg payload.Payload) (any, error)

func decoded[T any](p payload.Payload) T {
	var v T
	_ = payload.Decode(p, &v)
	return v
}

var behaviours = map[string]behaviour{
	"": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		return arg, nil
	},
	"main": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		return arg, nil
	},
	"count": func(_ context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		n, _ := c.Session().Get("n")
		next, _ := n.(int)
		next++
		c.Session().Set("n", next)
		return next, nil
	},
	"about": func(_ context.Context, c *executor.Call, inv executor.Invocation, _ payload.Payload) (any, error) {
		s := c.Session()
		return map[string]any{
			"id": s.ID, "epoch": s.Epoch, "is_new": c.IsNew, "dir": s.Dir, "pid": os.Getpid(), "attempt": inv.Attempt,
			"key": inv.IdempotencyKey(),
		}, nil
	},
	"last_heartbeat": func(
		_ context.Context, _ *executor.Call, inv executor.Invocation, _ payload.Payload,
	) (any, error) {
		if inv.LastHeartbeat == nil {
			return nil, nil
		}
		var last struct {
			Details any       `json:"details"`
			At      time.Time `json:"at"`
			Attempt int       `json:"attempt_number"`
		}
		err := json.Unmarshal(inv.LastHeartbeat, &last)
		return []any{last.Details, last.At.Unix(), last.Attempt}, err
	},
	"headers": func(
		_ context.Context, _ *executor.Call, inv executor.Invocation, _ payload.Payload,
	) (any, error) {
		got := map[string]string{}
		if inv.Headers == nil {
			return got, nil
		}
		return got, json.Unmarshal(inv.Headers, &got)
	},
	"pid": func(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
		return os.Getpid(), nil
	},
	"require_model": func(_ context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		return c.Session().Require("model")
	},
	"set_model": func(_ context.Context, c *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		c.Session().Set("model", decoded[any](arg))
		return arg, nil
	},
	"once": func(ctx context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		made, err := c.Session().GetOrCreate(ctx, "made", func(context.Context) (any, error) {
			time.Sleep(20 * time.Millisecond)
			n, _ := c.Session().Get("makings")
			makings, _ := n.(int)
			c.Session().Set("makings", makings+1)
			return "made", nil
		})
		n, _ := c.Session().Get("makings")
		return []any{made, n}, err
	},
	"fail": func(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
		return nil, &executor.Error{
			Type: executor.UserError, Class: "TypeError", Message: "this is wrong", Stack: "native",
			Details: []byte(`{"code":7}`),
		}
	},
	"wait": func(ctx context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		c.Progress([]byte(`"waiting"`))
		for {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Millisecond):
				c.Heartbeat()
			}
		}
	},
	"meet": awaitConcurrent,
	"spin": func(_ context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		c.Progress([]byte(`"spinning"`))
		for {
		}
	},
	"stubborn": func(_ context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		signal.Ignore(syscall.SIGTERM)
		c.Progress([]byte(`"deaf"`))
		for {
		}
	},
	"crash": func(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
		fmt.Fprintln(os.Stderr, "last words")
		signal.Reset(syscall.SIGSEGV)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	},
	"exit": func(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
		os.Exit(3)
		return nil, nil
	},
	"hog": func(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
		var held [][]byte
		for {
			held = append(held, bytes.Repeat([]byte{1}, 4<<20))
		}
	},
	"fill": func(_ context.Context, c *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		c.Session().Set("ballast", bytes.Repeat([]byte{1}, decoded[int](arg)<<20)) // MiB
		return nil, nil
	},
	"say": func(_ context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
		c.Log("warn", "to the log")
		return nil, nil
	},
	"flood": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		n := decoded[int](arg)
		chunk := bytes.Repeat([]byte("x\x1b[31m\x00\xff\xff"), 1<<17)
		for range n {
			if _, err := os.Stdout.Write(chunk); err != nil {
				return nil, err
			}
		}
		return n, nil
	},
	"page": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		answer := map[string]any{}
		res, err := http.Get(decoded[map[string]string](arg)["url"])
		if err != nil {
			answer["failed"] = err.Error()
			return answer, nil
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		answer["status"], answer["text"] = res.StatusCode, string(text)
		return answer, err
	},
	"environ": func(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
		env := map[string]string{}
		for _, pair := range os.Environ() {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		return env, nil
	},
	"write": func(_ context.Context, c *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		path := filepath.Join(c.Session().Dir, decoded[string](arg))
		if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(c.Session().Dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return string(text) + " " + strings.Join(names, ","), err
	},
	"read": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		text, err := os.ReadFile(decoded[string](arg))
		return string(text), err
	},
	"create": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		return nil, os.WriteFile(decoded[string](arg), []byte("made"), 0o600)
	},
	"attacks": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		return attack(decoded[Aim](arg)), nil
	},
	"on_close": func(_ context.Context, c *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		path := decoded[string](arg)
		c.Session().OnClose(func(context.Context) { _ = os.WriteFile(path, []byte("closed"), 0o600) })
		return nil, nil
	},
	"daemon": leaveDaemon,
	"leave_links": func(_ context.Context, c *executor.Call, _ executor.Invocation, _ payload.Payload) (any, error) {
		in := func(name string) string { return filepath.Join(c.Session().Dir, name) }
		return nil, errors.Join(os.Symlink("/etc/passwd", in("result.txt")), os.Symlink("/", in("root")),
			os.WriteFile(in("plain.txt"), []byte("plain"), 0o600))
	},
	"raw": func(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
		return nil, errors.Join(rawWrite(decoded[string](arg)), wait(100*time.Millisecond))
	},
}

// awaitConcurrent waits until the given number of calls run concurrently.
func awaitConcurrent(ctx context.Context, c *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
	made, err := c.Session().GetOrCreate(ctx, "meeting", func(context.Context) (any, error) {
		return make(chan struct{}, 100), nil
	})
	if err != nil {
		return nil, err
	}
	here := made.(chan struct{})
	here <- struct{}{}
	n := decoded[int](arg)
	for len(here) < n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	return len(here), nil
}

// leaveDaemon leaves a process that has left the session, and returns its pid.
func leaveDaemon(_ context.Context, _ *executor.Call, _ executor.Invocation, arg payload.Payload) (any, error) {
	script := fmt.Sprintf("setsid sh -c 'echo $$; exec sleep %d' & exit", decoded[int](arg))
	shell := exec.Command("sh", "-c", script)
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := shell.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	var pid int
	_, err = fmt.Fscan(out, &pid)
	return pid, err
}

// rawWrite writes onto the control socket behind the library's back: it is the one socket above the standard
// descriptors.
func rawWrite(encoded string) error {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	for fd := 3; fd < 64; fd++ {
		if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
			continue
		}
		for len(data) > 0 {
			n, err := syscall.Write(fd, data)
			if err != nil && !errors.Is(err, syscall.EAGAIN) {
				return err
			}
			data = data[max(n, 0):]
		}
		return nil
	}
	return errors.New("no socket")
}

func wait(d time.Duration) error { time.Sleep(d); return nil }
