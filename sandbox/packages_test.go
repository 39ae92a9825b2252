package sandbox_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// registry serves one npm package and one Python package with a greeting.
type registry struct {
	*httptest.Server
	tarball, wheel []byte

	mu     sync.Mutex    // guards the fields below
	broken bool          // knows nothing any more
	hold   chan struct{} // a package is delivered after this channel is closed; nil: at once
	got    map[string]int
}

func newRegistry(t *testing.T) *registry {
	return newRegistryWith(t, "require('fs').writeFileSync('ran', '')")
}

// newRegistryWith returns a registry whose npm package runs a script during installation.
func newRegistryWith(t *testing.T, script string) *registry {
	r := &registry{got: map[string]int{}}
	var packed bytes.Buffer
	squeezed := gzip.NewWriter(&packed)
	files := tar.NewWriter(squeezed)
	for name, text := range map[string]string{
		"package/package.json": `{"name": "hello-there", "version": "1.0.0", "type": "module",
			"exports": {"import": "./index.js"},
			"scripts": {"postinstall": "node script.cjs"}}`,
		"package/script.cjs": script,
		"package/index.js": "import { existsSync } from 'node:fs';\nexport const hello = (name) => `hello ${name}`;\n" +
			"export const ran = existsSync(new URL('ran', import.meta.url));\n",
	} {
		must(t, files.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644}))
		_, err := files.Write([]byte(text))
		must(t, err)
	}
	must(t, files.Close())
	must(t, squeezed.Close())
	r.tarball = packed.Bytes()
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for name, text := range map[string]string{
		"hello_there.py":                       "def hello(name):\n    return 'hello ' + name\n",
		"hello_there-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello-there\nVersion: 1.0.0\n",
		"hello_there-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"hello_there-1.0.0.dist-info/RECORD": "hello_there.py,,\nhello_there-1.0.0.dist-info/METADATA,,\n" +
			"hello_there-1.0.0.dist-info/WHEEL,,\nhello_there-1.0.0.dist-info/RECORD,,\n",
	} {
		w, err := z.Create(name)
		must(t, err)
		_, err = w.Write([]byte(text))
		must(t, err)
	}
	must(t, z.Close())
	r.wheel = wheel.Bytes()
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	// The machine's configuration must not affect the test.
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		switch upper := strings.ToUpper(name); {
		case strings.HasSuffix(upper, "_PROXY"), strings.HasPrefix(upper, "PIP_"), strings.HasPrefix(upper, "NPM_CONFIG_"):
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("NPM_CONFIG_USERCONFIG", os.DevNull)
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	t.Setenv("npm_config_registry", r.URL)
	t.Setenv("PIP_INDEX_URL", r.URL+"/simple/")
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	broken, hold := r.broken, r.hold
	r.got[req.URL.Path]++
	r.mu.Unlock()
	if hold != nil && (req.URL.Path == "/hello.tgz" || strings.HasSuffix(req.URL.Path, ".whl")) {
		select {
		case <-hold:
		case <-req.Context().Done():
		}
	}
	switch {
	case broken:
		http.Error(w, "out of order", http.StatusNotFound)
	case req.URL.Path == "/hello-there":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "hello-there", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "hello-there", "version": "1.0.0", "hasInstallScript": true,
				"dist": map[string]string{"tarball": r.URL + "/hello.tgz", "integrity": r.integrity()},
			}},
		})
	case req.URL.Path == "/hello.tgz":
		_, _ = w.Write(r.tarball)
	case req.URL.Path == "/simple/hello-there/":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><a href="/hello_there-1.0.0-py3-none-any.whl">hello_there-1.0.0-py3-none-any.whl</a>`)
	case strings.HasSuffix(req.URL.Path, ".whl"):
		_, _ = w.Write(r.wheel)
	default:
		http.NotFound(w, req)
	}
}

func (r *registry) integrity() string {
	sum := sha512.Sum512(r.tarball)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (r *registry) breaks(broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = broken
}

// fetched returns how often the packages themselves were downloaded.
func (r *registry) fetched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got["/hello.tgz"] + r.got["/hello_there-1.0.0-py3-none-any.whl"]
}

// packagers are handlers that need a package, by runtime.
func (r *registry) packagers() map[string]map[string]string {
	return map[string]map[string]string{
		sandbox.RuntimeNode: {
			"package.json": `{"private": true, "dependencies": {"hello-there": "^1.0.0"}}`,
			"package-lock.json": fmt.Sprintf(`{"lockfileVersion": 3, "requires": true, "packages": {
				"": {"dependencies": {"hello-there": "^1.0.0"}},
				"node_modules/hello-there": {"version": "1.0.0", "resolved": "%s/hello.tgz", "integrity": %q,
					"hasInstallScript": true}}}`, r.URL, r.integrity()),
			"greet.mjs": "import { hello, ran } from 'hello-there';\nexport const main = (name) => [hello(name), ran];\n",
			"typed.ts":  "import { hello, ran } from 'hello-there';\nexport const main = (n: string) => [hello(n), ran];\n",
		},
		sandbox.RuntimePython: {
			"requirements.txt": "hello-there==1.0.0\n",
			"greet.py":         "from hello_there import hello\n\n\ndef main(name, ctx):\n    return [hello(name), False]\n",
		},
	}
}

// openPackages returns a pool of the handlers in a folder, with the packages of that folder.
func openPackages(t *testing.T, o sandbox.Options, files map[string]string) *sandbox.Pool {
	t.Helper()
	if o.Handlers == "" {
		o.Handlers = sandboxtest.HandlersDir(t)
		for name, text := range files {
			must(t, os.WriteFile(filepath.Join(o.Handlers, name), []byte(text), 0o644))
		}
	}
	pool, err := sandbox.NewPool(sandboxtest.Fit(o))
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// kept returns the names in the folder of packages, without lock files.
func kept(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "packages", "*"))
	must(t, err)
	return slices.DeleteFunc(left, func(path string) bool { return filepath.Ext(path) == ".lock" })
}

// openDir returns a folder that every user can access.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return filepath.Join(dir, "pool")
}

// greet calls the handler until its packages are installed, or until the reason for the delay contains the given text.
func greet(t *testing.T, pool *sandbox.Pool, until string) (greeting string, ran bool) {
	t.Helper()
	return greetAs(t, pool, "greet", until)
}

func greetAs(t *testing.T, pool *sandbox.Pool, activity, until string) (greeting string, ran bool) {
	t.Helper()
	input, err := payload.EncodeArgs("you")
	must(t, err)
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		res, err := pool.Invoke(context.Background(), sandbox.Invocation{
			ID: "1", Activity: activity, Attempt: 1, Input: []byte(input.Blob),
		}, sandbox.Hooks{})
		if err == nil {
			var out []any
			must(t, payload.Decode(payload.Payload{Blob: string(res.Output)}, &out))
			return out[0].(string), out[1].(bool)
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Type != sandbox.Unavailable || !e.Retryable {
			t.Fatalf("the call failed with %v, want one that can be made again", err)
		}
		if until != "" && strings.Contains(e.Message, until) {
			return "", false
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute: %v", err)
		}
	}
}

func forPackages(t *testing.T, test func(t *testing.T, r *registry, runtime string, files map[string]string)) {
	t.Helper()
	for _, runtime := range []string{sandbox.RuntimeNode, sandbox.RuntimePython} {
		t.Run(runtime, func(t *testing.T) {
			r := newRegistry(t)
			test(t, r, runtime, r.packagers()[runtime])
		})
	}
}

// The packages of a handler's folder are installed once, without running their scripts, and imports find them; another
// worker of the folder needs no registry.
func TestPackagesAreInstalledOnce(t *testing.T) {
	forPackages(t, func(t *testing.T, r *registry, runtime string, files map[string]string) {
		var log bytes.Buffer
		dir, logger := openDir(t), zerolog.New(zerolog.SyncWriter(&log))
		pool := openPackages(t, sandbox.Options{Dir: dir, Instance: "a", Logger: logger}, files)
		if text, ran := greet(t, pool, ""); text != "hello you" || ran {
			t.Errorf("got %q; a script of the package ran: %v", text, ran)
		}
		pool.Close()
		if !strings.Contains(log.String(), `"package installer output: `) || !strings.Contains(log.String(), "installed") {
			t.Errorf("no progress in the log:\n%s", &log)
		}
		if n := r.fetched(); n != 1 {
			t.Errorf("the package was fetched %d times", n)
		}
		infos := pool.Packages()
		if len(infos) != 1 || infos[0].State != sandbox.PackagesInstalled || infos[0].Runtime != runtime ||
			infos[0].Bytes == 0 || time.Since(infos[0].Since) > time.Minute || !isDir(infos[0].Path) ||
			len(infos[0].Files) == 0 {
			t.Errorf("of the packages it says %+v", infos)
		}
		found(t, pool, dir, infos[0])
		r.Close()
		second := openPackages(t, sandbox.Options{Dir: dir, Instance: "b"}, files)
		if text, _ := greet(t, second, ""); text != "hello you" {
			t.Errorf("offline, with what is there: %q", text)
		}
	})
}

// A failed installation returns its error to callers, leaves no files and is repeated.
func TestFailedPackageInstallationIsRetried(t *testing.T) {
	forPackages(t, func(t *testing.T, r *registry, _ string, files map[string]string) {
		r.breaks(true)
		dir := openDir(t)
		pool := openPackages(t, sandbox.Options{Dir: dir}.WithInstallRetry(100*time.Millisecond), files)
		greet(t, pool, "could not be installed")
		infos := pool.Packages()
		if len(infos) != 1 || infos[0].Detail == "" || infos[0].Since.IsZero() ||
			infos[0].State != sandbox.PackagesInstalling &&
				(infos[0].State != sandbox.PackagesFailed || infos[0].RetryAt.IsZero()) {
			t.Errorf("of the packages it says %+v", infos)
		}
		found(t, pool, dir, sandbox.PackagesInfo{State: sandbox.PackagesFailed})
		if left := kept(t, dir); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
		r.breaks(false)
		if text, _ := greet(t, pool, ""); text != "hello you" {
			t.Errorf("got %q", text)
		}
	})
}

// isDir reports whether a folder exists.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// found compares the packages in a folder with want as a process without a worker finds them. An installation in
// progress reports its state instead.
func found(t *testing.T, pool *sandbox.Pool, dir string, want sandbox.PackagesInfo) {
	t.Helper()
	all, err := pool.FindPackages(t.Context(), dir)
	must(t, err)
	if len(all) == 1 && all[0].State == sandbox.PackagesInstalling && want.State == sandbox.PackagesFailed {
		return
	}
	if len(all) != 1 || all[0].State != want.State || want.Path != "" && all[0].Path != want.Path ||
		all[0].Bytes != want.Bytes || all[0].Since.IsZero() ||
		(want.State == sandbox.PackagesFailed) != (all[0].Detail != "") {
		t.Errorf("found %+v, want %+v", all, want)
	}
}

// Two workers with a shared folder download packages once. With separate folders each worker installs its own packages,
// and one worker continues when the other's packages are removed.
func TestTwoWorkersInstallPackages(t *testing.T) {
	for name, fetched := range map[string]int{"shared": 1, "own": 2} {
		t.Run(name, func(t *testing.T) {
			forPackages(t, func(t *testing.T, r *registry, runtime string, files map[string]string) {
				dirs := []string{openDir(t), openDir(t)}
				if fetched == 1 {
					dirs[1] = dirs[0]
				} else if runtime == sandbox.RuntimeNode { // the owner of the folder does not depend on the runtime
					return
				}
				var both sync.WaitGroup
				var pools []*sandbox.Pool
				for i, dir := range dirs {
					pool := openPackages(t, sandbox.Options{Dir: dir, Instance: fmt.Sprint(i)}, files)
					pools = append(pools, pool)
					pool.Install()
					both.Go(func() {
						if text, _ := greet(t, pool, ""); text != "hello you" {
							t.Errorf("%d got %q", i, text)
						}
					})
				}
				both.Wait()
				if n := r.fetched(); n != fetched {
					t.Errorf("the package was fetched %d times, want %d", n, fetched)
				}
				if fetched == 1 {
					return
				}
				pools[0].Close()
				must(t, os.RemoveAll(dirs[0]))
				if text, _ := greet(t, pools[1], ""); text != "hello you" {
					t.Errorf("without the other's folder: %q", text)
				}
				if infos := pools[1].Packages(); len(infos) != 1 || !strings.HasPrefix(infos[0].Path, dirs[1]+"/") {
					t.Errorf("the second has %+v", infos)
				}
			})
		})
	}
}

// The required packages are part of a handler's version, and changed requirements apply from the next call.
func TestPackagesBelongToTheVersion(t *testing.T) {
	r := newRegistry(t)
	files := r.packagers()[sandbox.RuntimePython]
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "greet.py"), []byte(files["greet.py"]), 0o644))
	version := func() string {
		t.Helper()
		found, _, err := sandbox.Discover(dir)
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		return found[0].Hash
	}
	seen := map[string]string{}
	for _, text := range []string{"", "# nothing yet\n", "hello-there==1.0.0\n", "hello-there==1.0.1\n", "-r more.txt\n"} {
		if text != "" {
			must(t, os.WriteFile(filepath.Join(dir, "requirements.txt"), []byte(text), 0o644))
		}
		seen[text] = version()
	}
	must(t, os.WriteFile(filepath.Join(dir, "more.txt"), []byte("hello-there==1.0.2\n"), 0o644))
	seen["more"] = version()
	if seen[""] != seen["# nothing yet\n"] || seen[""] != seen["-r more.txt\n"] {
		t.Errorf("a file that asks for nothing changes the version: %v", seen)
	}
	different := map[string]bool{}
	for _, text := range []string{"", "hello-there==1.0.0\n", "hello-there==1.0.1\n", "more"} {
		different[seen[text]] = true
	}
	if len(different) != 4 {
		t.Errorf("versions are the same: %v", seen)
	}
}

// On a machine without npm, or with a Python without pip, the state reports this and calls wait.
func TestPackagesWithoutAnInstaller(t *testing.T) {
	forPackages(t, func(t *testing.T, r *registry, runtime string, files map[string]string) {
		dir := t.TempDir()
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
		probe := openPackages(t, sandbox.Options{Dir: openDir(t)}, files)
		program := probe.Report().Runtimes[runtime]
		if program == "" {
			t.Skipf("%s is not on this machine", runtime)
		}
		o := sandbox.Options{Dir: openDir(t)}
		want := "is not installed"
		if runtime == sandbox.RuntimeNode {
			o.Node = filepath.Join(dir, "node")
			raw, err := os.ReadFile(program)
			must(t, err)
			must(t, os.WriteFile(o.Node, raw, 0o755))
			t.Setenv("PATH", dir)
		} else { // a Python with only its standard library
			o.Python = filepath.Join(dir, "bin", "python3")
			must(t, exec.Command(program, "-m", "venv", "--without-pip", dir).Run())
			must(t, os.Rename(filepath.Join(dir, "pyvenv.cfg"), filepath.Join(filepath.Dir(o.Python), "pyvenv.cfg")))
		}
		greet(t, openPackages(t, o, files), want)
	})
}

// Scripts of packages run if the settings allow it.
func TestPackagesWithScripts(t *testing.T) {
	r := newRegistry(t)
	o := sandbox.Options{Dir: openDir(t), Packages: sandbox.PackagesScripts}
	pool := openPackages(t, o, r.packagers()[sandbox.RuntimeNode])
	for _, name := range []string{"greet", "typed"} {
		if text, ran := greetAs(t, pool, name, ""); text != "hello you" || !ran {
			t.Errorf("%s: got %q; the script of the package ran: %v", name, text, ran)
		}
	}
}

// Scripts of packages are confined like handlers, and they can connect to the registries only.
func TestPackagesScriptsAreConfined(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("x"), 0o644))
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	r := newRegistryWith(t, fmt.Sprintf(`const { readFileSync, writeFileSync } = require('fs');
		const { connect } = require('net');
		const tried = {};
		try { readFileSync(%q); tried.file = 'read'; } catch (err) { tried.file = err.code; }
		try { writeFileSync(%q, ''); tried.write = 'written'; } catch (err) { tried.write = err.code; }
		const done = (what) => { tried.net = what; writeFileSync('ran', JSON.stringify(tried)); process.exit(); };
		const c = connect(%d, '127.0.0.1', () => done('reached'));
		c.on('error', (err) => done(err.code));`,
		secret, secret+".new", other.Listener.Addr().(*net.TCPAddr).Port))
	pool := openPackages(t, sandbox.Options{
		Dir: openDir(t), Packages: sandbox.PackagesScripts, Private: filepath.Dir(secret),
	}, r.packagers()[sandbox.RuntimeNode])
	report := pool.Report()
	if report.Level != sandbox.LevelConfined || report.Egress != sandbox.EgressFiltered {
		t.Skipf("this machine holds %s with egress %s", report.Level, report.Egress)
	}
	text, ran := greet(t, pool, "does not keep")
	if text == "" {
		t.Skip("this kernel does not keep what packages run from the network, and nothing was run")
	}
	if text != "hello you" || !ran {
		t.Fatalf("got %q; the script of the package ran: %v", text, ran)
	}
	found, err := filepath.Glob(filepath.Join(pool.PackagesDir(), "node-*", "node_modules", "hello-there", "ran"))
	if err != nil || len(found) != 1 {
		t.Fatalf("what the script said: %v, %v", found, err)
	}
	raw, err := os.ReadFile(found[0])
	must(t, err)
	if got, want := string(raw), `{"file":"EACCES","write":"EACCES","net":"EACCES"}`; got != want {
		t.Errorf("the script got %s, want %s", got, want)
	}
}

// Registries that only the worker's proxy reaches are reached through that.
func TestPackagesThroughTheWorkersProxy(t *testing.T) {
	forPackages(t, func(t *testing.T, r *registry, _ string, files map[string]string) {
		for name, text := range files {
			files[name] = strings.ReplaceAll(text, r.URL, "http://registry.invalid")
		}
		t.Setenv("npm_config_registry", "http://registry.invalid")
		t.Setenv("PIP_INDEX_URL", "http://registry.invalid/simple/")
		t.Setenv("PIP_TRUSTED_HOST", "registry.invalid")
		t.Setenv("HTTP_PROXY", r.URL)
		pool := openPackages(t, sandbox.Options{Dir: openDir(t)}, files)
		if text, _ := greet(t, pool, ""); text != "hello you" {
			t.Errorf("got %q", text)
		}
	})
}

// Packages that the folder has itself are installed from there, and their content belongs to the version.
func TestPackagesOfTheFolder(t *testing.T) {
	forPackages(t, func(t *testing.T, r *registry, runtime string, files map[string]string) {
		dir := sandboxtest.HandlersDir(t)
		delete(files, "package-lock.json")
		changed := "vendor/hello/index.js"
		if runtime == sandbox.RuntimeNode {
			files["package.json"] = `{"private": true, "dependencies": {"hello-there": "file:./vendor/hello"}}`
			files["vendor/hello/package.json"] = `{"name": "hello-there", "version": "1.0.0", "type": "module"}`
			files[changed] = "export const hello = (name) => `hello ${name}`;\nexport const ran = false;\n"
		} else {
			changed = "wheels/hello_there-1.0.0-py3-none-any.whl"
			files["requirements.txt"] = "./" + changed + "\n"
			files[changed] = string(r.wheel)
		}
		for name, text := range files {
			must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		pool := openPackages(t, sandbox.Options{Dir: openDir(t), Handlers: dir}, nil)
		if text, _ := greet(t, pool, ""); text != "hello you" {
			t.Errorf("got %q", text)
		}
		versions := map[string]bool{}
		for _, more := range []string{"", "\n"} {
			must(t, os.WriteFile(filepath.Join(dir, changed), []byte(files[changed]+more), 0o644))
			found, _, err := sandbox.Discover(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, def := range found {
				if def.Name == "greet" {
					versions[def.Hash] = true
				}
			}
		}
		if len(versions) != 2 {
			t.Errorf("another package, and the same version: %v", versions)
		}
	})
}

// Folders of packages that the machine's configuration names are read.
func TestPackagesOfAConfiguredFolder(t *testing.T) {
	r := newRegistry(t)
	wheels := t.TempDir()
	must(t, os.Chmod(filepath.Dir(wheels), 0o755))
	must(t, os.WriteFile(filepath.Join(wheels, "hello_there-1.0.0-py3-none-any.whl"), r.wheel, 0o644))
	t.Setenv("PIP_INDEX_URL", "")
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", wheels)
	pool := openPackages(t, sandbox.Options{Dir: openDir(t)}, r.packagers()[sandbox.RuntimePython])
	if text, _ := greet(t, pool, ""); text != "hello you" {
		t.Errorf("got %q", text)
	}
}

// The default registries of npm and pip are reached in the same way as configured registries: a network may resolve
// their names to a mirror.
func TestPackagesFromBuiltInRegistries(t *testing.T) {
	r := newRegistry(t)
	t.Setenv("npm_config_registry", "")
	t.Setenv("PIP_INDEX_URL", "")
	pool := openPackages(t, sandbox.Options{Dir: openDir(t)}, r.packagers()[sandbox.RuntimeNode])
	for _, runtime := range []string{sandbox.RuntimeNode, sandbox.RuntimePython} {
		found := pool.BuiltInRegistries(runtime)
		if len(found) == 0 || !strings.HasSuffix(found[0], ":443") {
			t.Errorf("%s: %q", runtime, found)
		}
	}
}

// The error of an installation is the error message of the installer or the proxy.
func TestErrorContainsTheLastOutputOfAnInstaller(t *testing.T) {
	for text, want := range map[string]string{
		"npm http\nnpm error code E404\nnpm error 404 not here\nnpm error A complete log of this run is in: /x\n"://
		"npm error code E404; npm error 404 not here",
		"WARNING: OSError('Tunnel: 403: the worker denied the connection to h:443: why')'\nERROR: No match\n"://
		"ERROR: No match; the worker denied the connection to h:443: why",
		"ERROR: Exception:\nTraceback (most recent call last):\n  File x\nPermissionError: y\n": "PermissionError: y",
		"something\nelse\n": "something\nelse",
	} {
		if got := sandbox.LastWords(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Packages that a user installed are used unchanged: the worker contacts no registry and stores nothing.
func TestPackagesThatAreThereAlready(t *testing.T) {
	vendored := `export const hello = (name) => "vendored " + name; export const ran = false;`
	for name, files := range map[string]map[string]string{
		"beside": {"node_modules/hello-there/index.js": vendored},
		"above":  {"../node_modules/hello-there/index.js": vendored},
		"python": {
			"requirements.txt": "pip>=9 ; python_version > '3'\n",
			"greet.py":         "def main(name, ctx):\n    return ['vendored ' + name, False]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			root := t.TempDir()
			must(t, os.Chmod(filepath.Dir(root), 0o755))
			handlers := filepath.Join(root, "handlers")
			all := map[string]string{}
			if name != "python" {
				all = r.packagers()[sandbox.RuntimeNode]
				all[filepath.Dir(slices.Collect(maps.Keys(files))[0])+"/package.json"] = `{"name": "hello-there", "version": "1.0.0", "type": "module"}`
			}
			maps.Copy(all, files)
			for name, text := range all {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(handlers, name)), 0o755))
				must(t, os.WriteFile(filepath.Join(handlers, name), []byte(text), 0o644))
			}
			dir := openDir(t)
			pool := openPackages(t, sandbox.Options{Dir: dir, Handlers: handlers}, nil)
			if text, _ := greet(t, pool, ""); text != "vendored you" {
				t.Errorf("got %q", text)
			}
			if left := kept(t, dir); len(left) > 0 || len(r.got) > 0 {
				t.Errorf("installed: %s, asked for: %v", left, r.got)
			}
			if infos := pool.Packages(); len(infos) != 1 || infos[0].State != sandbox.PackagesOthers || infos[0].Detail == "" {
				t.Errorf("of the packages it says %+v", infos)
			}
		})
	}
}

// Refused packages report how they can be installed.
func TestPackagesThatAreRefused(t *testing.T) {
	newRegistry(t)
	for want, files := range map[string]map[string]string{
		`"./src[x] ; python_version > '3'" is not a wheel`: {"requirements.txt": "./src[x] ; python_version > '3'\n"},
		`"-e .[x]" is not a wheel`:                         {"requirements.txt": "pip\n-e .[x]\n"},
		`"a @ https://h/a.tar.gz" is not a wheel`:          {"requirements.txt": "a @ https://h/a.tar.gz\n"},
		"../lib is outside the handlers' folder":           {"package.json": `{"dependencies": {"lib": "file:../lib"}}`},
	} {
		files["greet.py"], files["greet2.mjs"] = "def main(): pass\n", "export default () => 1;\n"
		pool := openPackages(t, sandbox.Options{Dir: openDir(t)}, files)
		name := "greet"
		if files["package.json"] != "" {
			name = "greet2"
		}
		text, _ := greetAs(t, pool, name, want)
		if text != "" {
			t.Errorf("got %q", text)
		}
	}
}

// A worker that is killed during an installation leaves no folder that another worker would use.
func TestPackagesOfAKilledWorker(t *testing.T) {
	forPackages(t, func(t *testing.T, r *registry, runtime string, files map[string]string) {
		handlers := sandboxtest.HandlersDir(t)
		for name, text := range files {
			must(t, os.WriteFile(filepath.Join(handlers, name), []byte(text), 0o644))
		}
		r.mu.Lock()
		r.hold = make(chan struct{})
		r.mu.Unlock()
		dir := openDir(t)
		worker := exec.Command(os.Args[0])
		worker.Args = []string{installerName, dir, handlers}
		must(t, worker.Start())
		for began := time.Now(); r.fetched() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal("nothing was fetched in a minute")
			}
		}
		must(t, worker.Process.Kill())
		_ = worker.Wait()
		left := kept(t, dir)
		if len(left) != 1 || !strings.Contains(left[0], ".tmp-") {
			t.Fatalf("while it was installing there were %s, want one that is not finished", left)
		}
		r.mu.Lock()
		close(r.hold)
		r.hold = nil
		r.mu.Unlock()
		// Packages that were not used for a month are removed at the next installation.
		old := filepath.Join(dir, "packages", runtime+"-0123")
		must(t, os.MkdirAll(filepath.Join(old, "x"), 0o755))
		month := time.Now().Add(-30 * 24 * time.Hour)
		must(t, os.Chtimes(old, month, month))
		young := old + "45"
		must(t, os.MkdirAll(young, 0o755))
		must(t, os.Chtimes(young, month.Add(time.Hour), month.Add(time.Hour)))
		pool := openPackages(t, sandbox.Options{Dir: dir, Handlers: handlers}, nil)
		if text, _ := greet(t, pool, ""); text != "hello you" {
			t.Errorf("got %q", text)
		}
		pool.Close()
		left = slices.DeleteFunc(kept(t, dir), func(path string) bool { return path == young })
		if len(left) != 1 || strings.Contains(left[0], ".tmp-") || left[0] == old {
			t.Errorf("there are %s, want the packages alone", left)
		}
		if _, err := os.Stat(young); err != nil {
			t.Errorf("what was used within a month: %v", err)
		}
	})
}

// installerName is the first argument of a worker that the test kills during an installation.
const installerName = "sandbox-test-installer"

// install is the main function of such a worker.
func install() {
	if len(os.Args) != 3 || os.Args[0] != installerName {
		return
	}
	pool, err := sandbox.NewPool(sandboxtest.Fit(sandbox.Options{Dir: os.Args[1], Handlers: os.Args[2]}))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	pool.Install()
	select {}
}
