package worker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sojourn-run/sojourn/internal/certs"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/suggest"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Main runs a worker with the workflows and activities that register adds, and exits the process. It reads settings
// from flags, SOJOURN_… variables or a file, as `sojourn worker` does; it needs only the URL of an app and a token.
func Main(register func(*Registry)) {
	r := NewRegistry()
	register(r)
	RunExecutor(r)
	process.Tune()
	os.Exit(run(r, os.Args[1:]))
}

func run(r *Registry, args []string) int {
	flags := pflag.NewFlagSet(filepath.Base(os.Args[0]), pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // else Parse prints the error together with all flags
	config.Register(flags, config.Worker)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Printf("Usage of %s:\n%s", flags.Name(), flags.FlagUsages())
			return 0
		}
		fmt.Fprintf(os.Stderr, "%s; see %s --help\n", suggest.Flag(flags, err), flags.Name())
		return process.ExitUsage
	}
	c, _, warnings, err := config.Load(flags, os.Environ(), "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return process.ExitUsage
	}
	log := process.Logger(os.Stderr, c.LogLevel, c.LogFormat)
	for _, w := range warnings {
		log.Warn().Msg(string(w))
	}
	if _, from := currentRelease(c); from == release.FromEmbedded {
		log.Warn().Msg("worker program sets no release, so the app's release gate cannot distinguish its builds; " +
			"set release, or deploy a VERSION file next to the binary")
	}
	rules, err := certs.Client(c.AppCA, c.ClientCert, c.ClientKey)
	var w *Worker
	if err == nil {
		w, err = fromConfig(r, c, link.Over(c.Link, c.AppURLs, rules), slogbridge.Slog(log))
	}
	if err == nil {
		if c.Handlers != "" {
			log.Info().Msg("handlers loaded: " + w.Handlers().String())
		}
		ctx, stop := process.Interrupts()
		defer stop()
		err = w.Run(ctx)
	}
	if err != nil {
		log.Error().Err(err).Msg("worker failed")
		return process.ExitFailed
	}
	return 0
}

// currentRelease returns the release of this process and where it was found.
func currentRelease(c *config.Config) (current, from string) {
	source := release.System()
	source.Setting = c.Release
	return release.Current(source)
}

// fromConfig returns a worker with the given settings. If no token is configured, the worker uses the token that the
// app has stored in the same data directory.
func fromConfig(r *Registry, c *config.Config, carrier link.Carrier, logger *slog.Logger) (*Worker, error) {
	token := c.Token
	if token == "" {
		stored, err := process.ReadToken(c.DataDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		token = stored
	}
	current, _ := currentRelease(c)
	apps := c.AppURLs
	if c.Role.RunsApp() {
		apps = []string{c.Addr}
	}
	sessions, err := strconv.Atoi(c.WorkerMaxSessions)
	if err != nil {
		sessions = AutoSessions
	}
	resources, err := protocol.ParseResources(strings.Join(c.Resources, ","))
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	return New(workeropt.Over(carrier, Options{
		Registry: r, Release: current, Strict: c.ReleaseStrict, Token: token, WorkerID: c.WorkerID,
		Namespace: c.Namespace,
		Queues:    c.Queues, BuildID: c.BuildID, Capabilities: c.Capabilities, Resources: resources.Texts(),
		Concurrency: c.WorkerConcurrency,
		StickyCache: c.StickyCacheSize, Addr: c.WorkerAddr,
		AttemptLease: c.AttemptLease,
		DrainTimeout: c.DrainTimeout, DataDir: c.DataDir, Handlers: c.Handlers, Watch: c.Role == config.Dev,
		SetLogLevel: func(level string) { process.SetLevel(cmp.Or(level, c.LogLevel)) },
		Logger:      logger,
		Sessions: SessionOptions{
			Max: sessions, MaxSetUps: c.MaxSetUps, Lease: c.SessionLease, Buffer: c.SessionBuffer, Idle: c.SessionIdle,
			SnapshotDir: c.SnapshotDir, SnapshotMaxAge: c.SnapshotMaxAge, SnapshotTimeout: c.SnapshotTimeout,
		},
		Executors: ExecutorOptions{
			Isolation: c.Isolation, IsolationMin: c.IsolationMin, Read: c.ExecutorRead, Write: c.ExecutorWrite,
			Node: c.Node, Python: c.Python, Packages: Packages(c.Packages), UIDs: c.ExecutorUIDs,
			Cgroup: c.ExecutorCgroup, Egress: c.Egress, EgressAllow: c.EgressAllow, Apps: apps,
			Memory: int64(c.ExecutorMemory) << 20,
		},
	}))
}
