package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/web"
	"github.com/sojourn-run/sojourn/worker"
)

func (p *program) migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Migrate the database to this release's schema, and exit", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			if err := s.keepPrivate(); err != nil {
				return err
			}
			st, err := s.openStore(c.Context(), "migrate", dispatch.New(dispatch.Options{}))
			if err != nil {
				return err
			}
			if schema, err := s.inspect(c.Context()); err == nil && schema.Found > schema.Required {
				fmt.Fprintln(p.out, "not migrated:", s.database()+",", schemaText(schema))
				return st.Close()
			}
			fmt.Fprintln(p.out, "migrated", s.database())
			return st.Close()
		},
	}
	config.Register(c.Flags(), config.App)
	return c
}

// finding is one line of the doctor's report.
type finding struct {
	what string
	ok   bool
	text string
}

func (p *program) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Check settings, data directory, database, release, language runtimes and sandbox of this machine",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			bad := 0
			for _, f := range append(p.examine(c.Context(), s), p.clockFinding(c)) {
				mark := "ok  "
				if !f.ok {
					mark, bad = "FAIL", bad+1
				}
				fmt.Fprintf(p.out, "%s %-16s %s\n", mark, f.what, f.text)
			}
			if bad > 0 {
				return fmt.Errorf("%d checks failed", bad)
			}
			return nil
		},
	}
	config.Register(c.Flags(), config.Both)
	return c
}

// clockTimeout is the time within which doctor needs the response of an app.
const clockTimeout = 3 * time.Second

// clockFinding reports the last jump of the database's clock that the app of the settings found since its start.
func (p *program) clockFinding(c *cobra.Command) finding {
	ctx, cancel := context.WithTimeout(c.Context(), clockTimeout)
	defer cancel()
	var o protocol.Overview
	app, err := p.client(c)
	if err == nil {
		err = app.Call(ctx, http.MethodGet, "/api/sojourn/overview", nil, &o)
	}
	switch {
	case err != nil:
		return finding{"clock", true, fmt.Sprintf("jumps unknown, no app was reached: %v", err)}
	case o.ClockJump == nil:
		return finding{"clock", true, fmt.Sprintf("no jump since the start of app %s", o.App)}
	}
	return finding{"clock", o.ClockJump.Error == "", o.ClockJump.String()}
}

// examine checks the requirements of a process on this machine.
func (p *program) examine(ctx context.Context, s *settings) []finding {
	list := []finding{
		{"release", s.Release != "0.0.0", fmt.Sprintf("%s (from %s)", s.Release, s.ReleaseFrom)},
		{
			"dashboard", web.Built(),
			map[bool]string{true: "built in", false: "not built in; run make web build"}[web.Built()],
		},
		{"machine", true, fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())},
	}
	list = append(list, writable(s.DataDir), s.databaseFinding(ctx))
	for _, r := range [][2]string{{"node", s.Node}, {"python3", s.Python}} {
		path, err := exec.LookPath(cmp.Or(r[1], r[0]))
		if err != nil {
			path = "not found; handlers in this language cannot run here"
		}
		list = append(list, finding{r[0], err == nil || r[1] == "", path})
	}
	return append(list, s.isolation(ctx, p.registry)...)
}

// isolation lists the handlers and the isolation of executors on this machine, which it verifies with probes.
func (s *settings) isolation(ctx context.Context, registry *worker.Registry) []finding {
	if s.Isolation == worker.IsolationNone {
		return []finding{{"isolation", true, "none: isolated activities run in the worker's own process"}}
	}
	dir, err := os.MkdirTemp("", "sojourn-doctor-")
	if err != nil {
		return []finding{{"isolation", false, err.Error()}}
	}
	defer os.RemoveAll(dir)
	o := sandbox.Options{
		Dir: dir, Handlers: s.Handlers, Private: s.DataDir, Read: s.ExecutorRead, Write: s.ExecutorWrite,
		EgressAllow: s.EgressAllow, Node: s.Node, Python: s.Python, Packages: sandbox.Packages(s.Packages),
	}
	o.Cgroup = s.ExecutorCgroup
	if s.ExecutorUIDs != "auto" {
		o.Users = s.ExecutorUIDs
	}
	if s.Egress != "auto" {
		o.Egress = sandbox.Egress(s.Egress)
	}
	if s.Isolation != "auto" {
		o.Level = sandbox.Level(s.Isolation)
	}
	if s.Handlers != "" {
		o.MinLevel = sandbox.Level(s.IsolationMin)
	}
	pool, err := sandbox.NewPool(o)
	if err != nil {
		return []finding{{"isolation", false, err.Error()}}
	}
	defer pool.Close()
	r := pool.Report()
	var list []finding
	if s.Handlers != "" {
		h, err := worker.FindHandlers(s.Handlers, registry, r.Runtimes)
		f := finding{"handlers", err == nil, h.String()}
		if err != nil {
			f.text = err.Error()
		}
		list = append(list, f)
		list = append(list, s.packages(ctx, pool)...)
	}
	text := string(r.Level)
	if r.Reason != "" {
		text += " (" + r.Reason + ")"
	}
	text += ", egress " + string(r.Egress)
	if r.EgressBy != "" {
		text += " by " + r.EgressBy
	}
	text = strings.Join(append([]string{text, r.Limits()}, r.Missing...), "\n                      ")
	return append(list, finding{"isolation", true, text})
}

// packages lists the state of handler packages in the folder that the workers of this data directory share.
func (s *settings) packages(ctx context.Context, pool *sandbox.Pool) []finding {
	found, err := pool.FindPackages(ctx, worker.SandboxDir(s.DataDir))
	var list []finding
	for _, i := range workeropt.Packages(found) {
		list = append(list, finding{
			i.Runtime + " packages", i.State != string(sandbox.PackagesFailed), packagesText(i, time.Now()),
		})
	}
	if err != nil {
		list = append(list, finding{"packages", false, err.Error()})
	}
	return list
}

// writable reports whether files can be created in a directory, or in its nearest existing parent.
func writable(dir string) finding {
	abs, err := filepath.Abs(dir)
	near, text := abs, abs
	for err == nil {
		if _, err = os.Stat(near); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		near, text, err = filepath.Dir(near), abs+", created at the first start", nil
	}
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(near, "doctor-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return finding{"data directory", false, err.Error()}
	}
	return finding{"data directory", true, text}
}

// databaseFinding checks the schema without changing it. A database file that another process has locked passes.
func (s *settings) databaseFinding(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	schema, err := s.inspect(ctx)
	text := s.database() + ", " + schemaText(schema)
	switch {
	case errors.Is(err, store.ErrBusy):
		text += fmt.Sprintf(" (%v)", err)
	case err != nil:
		return finding{"database", false, fmt.Sprintf("%s: %v", s.database(), err)}
	}
	if d := schema.Durability; d != nil {
		text += ", " + d.String()
		if d.Risk() {
			text += ": a crash of the server can lose acknowledged work"
		}
	}
	return finding{"database", schema.Refused == nil, text}
}

// schemaText describes the schema that was found and the schema that this release needs.
func schemaText(s store.Schema) string {
	switch {
	case s.Found == 0:
		return fmt.Sprintf("empty; the first start creates schema %d", s.Required)
	case s.Found < s.Required:
		return fmt.Sprintf("schema %d; the next start, or sojourn migrate, migrates it to schema %d", s.Found, s.Required)
	case s.Refused != nil:
		return s.Refused.Error()
	case s.Found > s.Required:
		return fmt.Sprintf("schema %d of a newer release; this release (schema %d) can serve it", s.Found, s.Required)
	}
	return fmt.Sprintf("schema %d", s.Found)
}
