package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/cli/config"
	"github.com/sojourn-run/sojourn/web"
)

func (p *program) migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the database to this release's schema, and exit", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			st, err := s.open(c.Context(), "migrate", dispatch.New(dispatch.Options{}))
			if err != nil {
				return err
			}
			fmt.Fprintln(p.out, "migrated", s.database())
			return st.Close()
		},
	}
	config.Register(c.Flags(), config.App)
	return c
}

// finding is one line of the doctor.
type finding struct {
	what string
	ok   bool
	text string
}

func (p *program) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Check settings, data directory, database, release, runtimes and sandbox of this machine", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			bad := 0
			for _, f := range p.examine(c.Context(), s) {
				mark := "ok  "
				if !f.ok {
					mark, bad = "FAIL", bad+1
				}
				fmt.Fprintf(p.out, "%s %-16s %s\n", mark, f.what, f.text)
			}
			if bad > 0 {
				return fmt.Errorf("%d of the checks failed", bad)
			}
			return nil
		},
	}
	config.Register(c.Flags(), config.Both)
	return c
}

// examine looks at everything a process of this machine needs.
func (p *program) examine(ctx context.Context, s *settings) []finding {
	list := []finding{
		{"release", s.Release != "0.0.0", fmt.Sprintf("%s (from %s)", s.Release, s.ReleaseFrom)},
		{"dashboard", web.Built(), map[bool]string{true: "inside the binary", false: "not built in; run make web build"}[web.Built()]},
		{"machine", true, fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())},
	}
	list = append(list, writable(s.DataDir), s.reachable(ctx))
	for _, r := range []string{"node", "python3"} {
		path, err := exec.LookPath(r)
		if err != nil {
			path = "not found: activities in its language cannot run here"
		}
		list = append(list, finding{r, true, path})
	}
	return list
}

func writable(dir string) finding {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, "doctor-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return finding{"data directory", false, err.Error()}
	}
	abs, err := filepath.Abs(dir)
	return finding{"data directory", err == nil, abs}
}

// reachable opens the database. One that another process holds is as good: that process has it.
func (s *settings) reachable(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	st, err := s.open(ctx, "doctor", dispatch.New(dispatch.Options{}))
	if errors.Is(err, store.ErrBusy) {
		return finding{"database", true, fmt.Sprintf("%s: %v", s.database(), err)}
	}
	if err == nil {
		err = errors.Join(st.View(ctx, func(r store.Reader) error { return r.Ping(ctx) }), st.Close())
	}
	if err != nil {
		return finding{"database", false, fmt.Sprintf("%s: %v", s.database(), err)}
	}
	return finding{"database", true, s.database()}
}
