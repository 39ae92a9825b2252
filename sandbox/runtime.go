package sandbox

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
	"github.com/sojourn-run/sojourn/sandbox/internal/shim"
)

// These are the names of the runtimes.
const (
	RuntimeNative = "native"
	RuntimeNode   = "node"
	RuntimePython = "python"
)

// shimName is the file of each shim in a pool's folder.
var shimName = map[string]string{RuntimeNode: "node.mjs", RuntimePython: "python.py"}

// proxyName is the name of the file that makes Node connect through the worker's proxy.
const proxyName = "proxy.cjs"

// language describes how handlers of one language run: the program, its arguments and environment, and its limits.
type language struct {
	name    string
	program string
	args    []string // the program's own name first
	env     []string
	limits  Limits
	// lockdown rules of an executor with that scratch folder; nil below level confined
	rule func(scratch string) *lockdown.Rules
	// explains a denied path that a setting or a link seems to allow; nil below level confined
	unreachable func(path string) string
	proxy       *egress.Proxy // proxy for its network access; nil: other access, or none
	// folder of the handlers' packages, for executors that start from now on; nil for none
	packages atomic.Pointer[string]
}

// installed returns the folder of the packages for executors that start now, or "" if there are none.
func (l *language) installed() string {
	if dir := l.packages.Load(); dir != nil {
		return *dir
	}
	return ""
}

// self returns the path of the running binary, also after the file was replaced.
func self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// programs returns the interpreters by runtime. An interpreter that is configured by path must exist; others may be
// missing.
func programs(o Options) (map[string]string, error) {
	all := map[string]string{}
	if len(Native) > 0 {
		program, err := self()
		if err != nil {
			return nil, fmt.Errorf("own program: %w", err)
		}
		all[RuntimeNative] = program
	}
	node, err := findProgram(o.Node, "node", "-p", "process.execPath")
	if err != nil {
		return nil, err
	}
	python, err := findProgram(o.Python, "python3", "-c", "import sys; print(sys.executable)")
	if err != nil {
		return nil, err
	}
	for name, program := range map[string]string{RuntimeNode: node, RuntimePython: python} {
		if program != "" {
			all[name] = program
		}
	}
	return all, nil
}

// These are the default memory limits of executors.
const (
	nativeMemory = 128 << 20
	scriptMemory = 256 << 20
)

// languages writes the shim of each runtime and returns the runtimes. If executors run under other users, the shims are
// readable for all users.
func languages(o Options, programs map[string]string, shims string, others bool) (map[string]*language, error) {
	mode := fs.FileMode(0o600)
	if others {
		mode = 0o644
	}
	all := map[string]*language{}
	if program := programs[RuntimeNative]; program != "" {
		l := o.Limits[RuntimeNative].or(defaultLimits(nativeMemory))
		all[RuntimeNative] = &language{
			name: RuntimeNative, program: program, args: []string{nativeName}, limits: l,
			// A confined process cannot read the memory limit of its cgroup.
			env: []string{fmt.Sprintf("GOMEMLIMIT=%d", l.Memory/10*8), fmt.Sprintf("GOMAXPROCS=%d", runtime.GOMAXPROCS(0))},
		}
	}
	if program := programs[RuntimeNode]; program != "" {
		script := filepath.Join(shims, shimName[RuntimeNode])
		if err := os.WriteFile(script, shim.Node, mode); err != nil {
			return nil, fmt.Errorf("write the Node.js shim: %w", err)
		}
		if err := os.WriteFile(filepath.Join(shims, proxyName), shim.NodeProxy, mode); err != nil {
			return nil, fmt.Errorf("write the Node.js shim: %w", err)
		}
		l := o.Limits[RuntimeNode].or(defaultLimits(scriptMemory))
		// V8's heap limit is below the executor's limit, so that V8 can report an out-of-memory error.
		heap := fmt.Sprintf("--max-old-space-size=%d", l.Memory/10*6>>20)
		all[RuntimeNode] = &language{
			name: RuntimeNode, program: program, args: []string{"node", heap, script}, limits: l,
		}
	}
	if program := programs[RuntimePython]; program != "" {
		script := filepath.Join(shims, shimName[RuntimePython])
		if err := os.WriteFile(script, shim.Python, mode); err != nil {
			return nil, fmt.Errorf("write the Python shim: %w", err)
		}
		all[RuntimePython] = &language{
			name: RuntimePython, program: program, args: []string{program, "-I", "-B", script},
			limits: o.Limits[RuntimePython].or(defaultLimits(scriptMemory)),
		}
	}
	return all, nil
}

// findProgram finds a program. It returns an empty path if name is not in PATH and no path was configured. The program
// may be a script of a version manager, which starts more slowly than the interpreter; question is the argument list
// with which it prints the interpreter's path.
func findProgram(path, name string, arguments ...string) (string, error) {
	program := path
	if program == "" {
		program = name
	}
	found, err := exec.LookPath(program)
	if err != nil {
		if path == "" {
			return "", nil
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if found, err = filepath.Abs(found); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if !isScript(found) {
		return found, nil
	}
	out, err := outputOf(context.Background(), found, arguments...)
	if err != nil {
		if path == "" {
			return "", nil // a version manager's script for a version that is not installed
		}
		return "", fmt.Errorf("%s: run %s to find the interpreter: %w", name, found, err)
	}
	if real := strings.TrimSpace(string(out)); filepath.IsAbs(real) {
		return real, nil
	}
	return found, nil
}

// outputOf runs a program and returns its output. Scripts of version managers need their environment variables.
// Variables of Sojourn, such as the worker's token, are removed.
func outputOf(ctx context.Context, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, outputTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "SOJOURN_") })
	return c.Output()
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var start [2]byte
	_, err = io.ReadFull(f, start[:])
	return err == nil && string(start[:]) == "#!"
}

// environment returns all environment variables of an executor.
func (l *language) environment(o Options, scratch string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + scratch, "TMPDIR=" + scratch, "LANG=C.UTF-8",
	}
	if zone, ok := os.LookupEnv("TZ"); ok {
		env = append(env, "TZ="+zone)
	}
	return append(append(env, l.env...), o.Environment...)
}
