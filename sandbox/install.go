package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// errNoInstaller reports that the machine has no npm or pip.
var errNoInstaller = errors.New("is not installed: install it, or install the packages yourself and set handler-packages to none")

// installer is one run of npm or pip.
type installer struct {
	args, reads []string // args: the command's arguments; reads: readable paths besides its runtime and the handlers
	write       string   // writable path besides its scratch folder; empty: none
	network     bool
	registries  []string // reachable registries besides the configured ones
	// progress receives each line that the command prints; the line is also logged. It is nil for a command whose
	// output is its result.
	progress func(line string)
}

// run installs the packages of a manifest into a folder with npm or pip. The installer is confined like executors, but
// may write to that folder and connect to registries.
func (k *packages) run(ctx context.Context, l *language, m manifest, dir string, progress func(line string)) error {
	scripts := k.pool.opt.Packages == PackagesScripts
	if m.builds != "" && !scripts {
		return fmt.Errorf("%q is not a wheel, so installing it runs its build code; set handler-packages to scripts to allow that", m.builds)
	}
	with, err := packager(l, m, dir, scripts)
	if err != nil {
		return err
	}
	with.registries, with.progress = k.builtIn(ctx, l, m), progress
	_, err = k.execute(ctx, l, m, with)
	supervisor.Wipe(filepath.Join(dir, cacheOfNPM))
	return err
}

// cacheOfNPM is the name of npm's download cache. It is never read after the installation.
const cacheOfNPM = ".npm-cache"

// builtIn returns the registries that npm and pip use without configuration. A network may resolve their names to the
// address of a mirror.
func (k *packages) builtIn(ctx context.Context, l *language, m manifest) []string {
	with := installer{args: []string{
		l.program, "-I", "-c", "from pip._internal.models.index import PyPI; " +
			"print(PyPI.url, 'https://' + PyPI.file_storage_domain)",
	}}
	if l.name == RuntimeNode {
		npm, err := findNPM(l.program)
		if err != nil {
			return nil
		}
		with = installer{args: []string{"node", npm, "config", "get", "registry"}, reads: npmFiles(npm)}
	}
	output, _ := k.execute(ctx, l, m, with) // an error means that no registry is configured
	return readConfiguration(output).registries
}

// npmFiles returns the paths that npm reads besides the files of Node.
func npmFiles(npm string) []string {
	return []string{filepath.Dir(filepath.Dir(npm)), "/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"}
}

// present reports whether the Python interpreter already has the packages of a manifest because a user installed them
// for it.
func (k *packages) present(ctx context.Context, l *language, m manifest) bool {
	if l.name != RuntimePython || m.builds != "" {
		return false
	}
	args := append(pip(l.program, m.root), "install", "--dry-run", "--no-index", "--only-binary", ":all:", "--no-input",
		"--no-cache-dir", "--disable-pip-version-check", "-r", filepath.Join(m.root, m.files[0]))
	output, err := k.execute(ctx, l, m, installer{args: args, reads: distribution()})
	return err == nil && !strings.Contains(output, "Would install")
}

// execute runs npm or pip and returns its output, which it logs during installations.
func (k *packages) execute(ctx context.Context, l *language, m manifest, with installer) (output string, err error) {
	p := k.pool
	u, err := p.users.acquireUser()
	if err != nil {
		return "", err
	}
	defer u.release()
	scratch := filepath.Join(p.dir, "packages-"+rand.Text()[:10])
	defer supervisor.Wipe(scratch)
	if err := errors.Join(os.Mkdir(scratch, 0o700), u.own(scratch)); err != nil {
		return "", err
	}
	if with.write != "" {
		if err := u.own(with.write); err != nil {
			return "", err
		}
		if l.name == RuntimeNode { // npm installs into the folder of the manifest
			if err := m.copyTo(with.write, u); err != nil {
				return "", err
			}
		}
	}
	from, err := configuration(l.name, scratch, u)
	if err != nil {
		return "", err
	}
	env := append(l.environment(p.opt, scratch), installEnv(l.name)...)
	for i, pair := range env {
		// Installation scripts then find the interpreter for which the packages are installed.
		if strings.HasPrefix(pair, "PATH=") {
			env[i] = "PATH=" + filepath.Dir(l.program) + ":" + strings.TrimPrefix(pair, "PATH=")
		}
	}
	config := supervisor.Config{
		Path: l.program, Args: with.args, Dir: scratch, User: u.number(),
		Memory: installMemory, Data: 2 * installMemory, FileSize: installDisk / 2, Files: 4096, Processes: 128,
		ScratchBytes: installDisk, ScratchFiles: 400_000,
	}
	switch {
	case l.rule != nil:
		r := l.rule(scratch)
		r.Read, r.Inet, r.Ports = slices.Concat(r.Read, with.reads, from.files), false, nil
		if with.write != "" {
			r.Write = append(r.Write, with.write)
		}
		if with.network {
			out, done, err := p.installerNetwork(r, slices.Concat(from.registries, with.registries))
			if err != nil {
				return "", err
			}
			defer done()
			env = append(env, out...)
		}
		config.Lockdown = r
	case with.network:
		env = append(env, proxyEnv()...)
	}
	config.Env = env
	return p.installed(ctx, config, with.progress)
}

// copyTo copies the input files of npm into a folder.
func (m *manifest) copyTo(dir string, u *user) error {
	for _, name := range slices.Concat(m.files, m.local) {
		raw, err := os.ReadFile(filepath.Join(m.root, name))
		if err != nil {
			return err
		}
		made := dir
		for _, part := range strings.Split(filepath.Dir(name), string(filepath.Separator)) {
			made = filepath.Join(made, part)
			if part == "." || isFolder(made) {
				continue
			}
			if err := errors.Join(os.Mkdir(made, 0o700), u.own(made)); err != nil {
				return err
			}
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(to, raw, 0o600), u.own(to)); err != nil {
			return err
		}
	}
	return nil
}

// installerNetwork connects an installer to its registries. It uses either a proxy like the proxy of executors, which
// also admits the configured registries of the machine, or the proxy that is configured for the worker. It returns the
// environment variables for the installer.
func (p *Pool) installerNetwork(r *lockdown.Rules, registries []string) (env []string, done func(), err error) {
	done = func() {}
	r.Inet, r.Ports = true, nil
	held := lockdown.Kernel{Landlock: r.Landlock, Filter: r.Filter}.HoldsPorts()
	if p.report.Egress == EgressOpen {
		return proxyEnv(), done, nil
	}
	if !held && p.opt.Packages == PackagesScripts {
		return nil, nil, errors.New("handler-packages scripts needs a kernel that can restrict the network of install scripts " +
			"(Landlock ABI 4, Linux 6.7); upgrade the kernel, or set egress to open")
	}
	if upstream := proxyEnv(); len(upstream) > 0 {
		if held {
			r.Ports = ports(append(registries, values(upstream)...))
		}
		return upstream, done, nil
	}
	proxy, err := egress.Listen(egress.Options{
		Network: "tcp", Address: "127.0.0.1:0", Allow: append(slices.Clone(p.opt.EgressAllow), registries...),
		Closed: p.opt.Apps, Resolver: p.opt.resolver, Logger: p.opt.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	pass := proxy.Admit("packages")
	if held {
		r.Ports = []uint16{uint16(proxy.Port())} //nolint:gosec // a port
	}
	return proxyEnvironment(proxy, pass), func() { pass.Revoke(); proxy.Close() }, nil
}

// installed runs an installer and returns the end of its output. Its error contains the installer's last error lines.
func (p *Pool) installed(
	ctx context.Context, config supervisor.Config, progress func(line string),
) (printed string, err error) {
	proc, err := startProcess(config)
	if err != nil {
		return "", err
	}
	line := func(text []byte) {
		if s := strings.TrimSpace(clean(text)); s != "" && progress != nil {
			p.opt.Logger.Info().Msg("package installer output: " + s)
			progress(s)
		}
	}
	stdout, stderr := &output{file: proc.stdout, line: line}, &output{file: proc.stderr, line: line}
	var printing sync.WaitGroup
	printing.Go(stdout.run)
	printing.Go(stderr.run)
	stop := context.AfterFunc(ctx, func() { proc.order(supervisor.OrderKill) })
	proc.order(supervisor.OrderBusy)
	var end supervisor.Fact
	for end.T != supervisor.FactEnd {
		f, ferr := proc.fact()
		switch {
		case ferr != nil:
			end = supervisor.Fact{T: supervisor.FactEnd, Exit: -1, Error: "the supervisor of the installation ended"}
			supervisor.KillOrphans(config.Dir, config.User)
		case f.T == supervisor.FactOOM:
			err = fmt.Errorf("the installation exceeded its memory limit of %d MiB", config.Memory>>20)
		case f.T == supervisor.FactQuota, f.T == supervisor.FactStarted && f.Error != "":
			err = errors.New(f.Error)
		case f.T == supervisor.FactEnd:
			end = f
		}
	}
	stop()
	printing.Wait()
	_ = proc.cmd.Wait()
	proc.release()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", err
	case end.Exit == 0:
		return stdout.last(), nil
	case strings.Contains(stderr.last(), "No module named pip"):
		return "", fmt.Errorf("pip of %s %w", config.Path, errNoInstaller)
	}
	return "", errors.New(errorLines(cmp.Or(stderr.last(), stdout.last(), explain(end, "").message)))
}

// errorLines returns the lines in which an installer reports errors.
func errorLines(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		isError := strings.HasPrefix(line, "npm error") || strings.HasPrefix(line, "npm ERR!") ||
			strings.HasPrefix(line, "ERROR")
		if isError && line != "ERROR: Exception:" && !strings.Contains(line, "A complete log of this run") {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		text = strings.TrimSpace(text)
		if at := strings.LastIndexByte(text, '\n'); strings.Contains(text, "Traceback (most recent call last)") {
			return text[at+1:]
		}
		return text[max(0, len(text)-500):]
	}
	all = all[:min(len(all), 4)]
	if why := egressRefusal.FindString(text); why != "" && !strings.Contains(strings.Join(all, ""), why) {
		all = append(all, why)
	}
	return strings.Join(all, "; ")
}

// egressRefusal matches the proxy's message about a refused address, which pip includes in its own messages.
var egressRefusal = regexp.MustCompile(`the worker denied the connection to [^'"\n]+`)

// inFolder is Python code that runs pip as if it had been started in a folder, because pip resolves relative paths of
// requirements from there.
const inFolder = "import os, runpy, sys; os.chdir(sys.argv.pop(1)); sys.argv[0] = 'pip'; " +
	"runpy.run_module('pip', run_name='__main__', alter_sys=True)"

// pip returns the command that starts pip in a folder.
func pip(program, folder string) []string { return []string{program, "-I", "-c", inFolder, folder} }

// packager returns the command that installs the packages of a manifest into dir.
func packager(l *language, m manifest, dir string, scripts bool) (installer, error) {
	if l.name == RuntimePython {
		args := append(
			pip(l.program, m.root), "install", "--target", dir, "--no-input", "--no-cache-dir", "--progress-bar", "off",
			"--disable-pip-version-check", "--no-warn-script-location", "--root-user-action", "ignore",
		)
		if !scripts {
			args = append(args, "--only-binary", ":all:")
		}
		args = append(args, "-r", filepath.Join(m.root, m.files[0]))
		return installer{args: args, reads: distribution(), write: dir, network: true}, nil
	}
	npm, err := findNPM(l.program)
	if err != nil {
		return installer{}, err
	}
	verb := "install"
	if m.locked {
		verb = "ci"
	}
	args := []string{
		"node", npm, verb, "--prefix", dir, "--cache", filepath.Join(dir, cacheOfNPM), "--omit", "dev", "--no-audit",
		"--no-fund", "--no-progress", "--no-update-notifier", "--loglevel", "http",
	}
	if !scripts {
		args = append(args, "--ignore-scripts")
	}
	return installer{args: args, reads: npmFiles(npm), write: dir, network: true}, nil
}

// distribution returns the files of the machine that pip reads: its configuration, and the name of the Linux
// distribution, without which some versions of pip do not start.
func distribution() []string {
	all := []string{"/etc/pip.conf", "/etc/xdg/pip"}
	for _, pattern := range []string{"/etc/*release", "/etc/*version"} {
		found, _ := filepath.Glob(pattern) // cannot fail: the pattern is valid
		all = append(all, found...)
	}
	return all
}

// findNPM returns the npm program: the one next to Node, otherwise the one in PATH.
func findNPM(node string) (string, error) {
	nodeDir := filepath.Dir(followed(node))
	candidates := []string{
		filepath.Join(filepath.Dir(node), "npm"), filepath.Join(nodeDir, "npm"),
		filepath.Join(filepath.Dir(nodeDir), "lib", "node_modules", "npm", "bin", "npm-cli.js"),
	}
	if found, err := exec.LookPath("npm"); err == nil {
		candidates = append(candidates, found)
	}
	for _, c := range candidates {
		if real := followed(c); isFile(real) && filepath.Ext(real) == ".js" {
			return real, nil
		}
	}
	return "", fmt.Errorf("npm %w", errNoInstaller)
}

// proxyEnv returns the worker's own environment variables for an HTTP proxy; empty if it has none.
func proxyEnv() []string {
	var env []string
	proxied := false
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		for _, name := range []string{name, strings.ToLower(name)} {
			if value := os.Getenv(name); value != "" {
				env = append(env, name+"="+value)
				proxied = proxied || strings.ToUpper(name) != "NO_PROXY"
			}
		}
	}
	if !proxied {
		return nil
	}
	return env
}

// values returns the HOST:PORT of the proxies in environment variables.
func values(env []string) []string {
	var all []string
	for _, pair := range env {
		if name, value, _ := strings.Cut(pair, "="); strings.ToUpper(name) != "NO_PROXY" {
			if at := endpoint(value); at != "" {
				all = append(all, at)
			}
		}
	}
	return all
}

// installEnv returns the variables of the worker's environment that configure npm and pip.
func installEnv(runtime string) []string {
	prefix := map[string]string{RuntimeNode: "npm_config_", RuntimePython: "pip_"}[runtime]
	var env []string
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		switch strings.ToLower(name) {
		case "npm_config_userconfig", "npm_config_cache", "npm_config_prefix", "pip_config_file", "pip_cache_dir":
			continue // the installer has a home directory of its own
		case "ssl_cert_file", "ssl_cert_dir", "node_extra_ca_certs", "requests_ca_bundle":
			env = append(env, pair)
			continue
		}
		if strings.HasPrefix(strings.ToLower(name), prefix) && value != "" {
			env = append(env, pair)
		}
	}
	return env
}

// configured is the configuration of an installer (npm or pip) for the machine and for this user, read from files and
// environment variables.
type configured struct {
	registries []string // HOST:PORT of the registries in it
	files      []string // files and folders that the configuration names, such as packages and certificates
}

// configuration copies this user's configuration of an installer into its home, and returns the whole configuration. It
// ignores configuration in the handlers' folder, because authors of handlers must not decide which hosts the installer
// reaches.
func configuration(runtime, home string, u *user) (c configured, err error) {
	user, _ := os.UserHomeDir()
	to := filepath.Join(home, ".npmrc")
	own := []string{os.Getenv("NPM_CONFIG_USERCONFIG"), filepath.Join(user, ".npmrc")}
	machine := []string{"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"}
	if runtime == RuntimePython {
		to = filepath.Join(home, ".pip", "pip.conf")
		own = []string{
			os.Getenv("PIP_CONFIG_FILE"), filepath.Join(user, ".config", "pip", "pip.conf"),
			filepath.Join(user, ".pip", "pip.conf"),
		}
		machine = []string{"/etc/pip.conf", "/etc/xdg/pip/pip.conf"}
	}
	var text []byte
	for _, path := range own {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text = append(text, raw...)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return c, err
		}
		if err := os.WriteFile(to, raw, 0o600); err != nil {
			return c, err
		}
		for path := to; path != home; path = filepath.Dir(path) {
			if err := u.own(path); err != nil {
				return c, err
			}
		}
		break
	}
	for _, path := range machine {
		raw, _ := os.ReadFile(path)
		text = append(append(text, '\n'), raw...)
	}
	text = append(text, '\n')
	for _, pair := range installEnv(runtime) {
		text = append(append(text, pair...), '\n')
	}
	return readConfiguration(string(text)), nil
}

// readConfiguration reads lines NAME=VALUE. A line that begins with a blank continues the previous one.
func readConfiguration(text string) (c configured) {
	name := ""
	for line := range strings.Lines(text) {
		value := line
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.ContainsAny(trimmed[:1], "#;[") {
			continue
		}
		if before, after, ok := strings.Cut(line, "="); ok && !strings.ContainsAny(line[:1], " \t") {
			name, value = before, after
		}
		for _, found := range address.FindAllString(line, -1) {
			if at := endpoint(found); at != "" {
				c.registries = append(c.registries, at)
			}
		}
		for _, word := range strings.Fields(value) {
			if word = strings.Trim(word, `"'`); filepath.IsAbs(word) && namesFiles.MatchString(name) {
				c.files = append(c.files, word)
			}
		}
	}
	slices.Sort(c.registries)
	c.registries = slices.Compact(c.registries)
	return c
}

var (
	address    = regexp.MustCompile(`https?://[^\s"',]+`)
	namesFiles = regexp.MustCompile(`(?i)find[-_]links|cert|cafile|bundle|constraint`)
)

// endpoint returns the HOST:PORT of a URL, or "" if it has none.
func endpoint(text string) string {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
	}
	at := net.JoinHostPort(u.Hostname(), cmp.Or(port, "80"))
	if _, err := egress.ParseEntry(at); err != nil {
		return ""
	}
	return at
}

// ports returns the ports of endpoints.
func ports(endpoints []string) []uint16 {
	var all []uint16
	for _, at := range endpoints {
		_, port, _ := net.SplitHostPort(at)
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			all = append(all, uint16(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
