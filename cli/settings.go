package cli

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/cli/config"
	"github.com/sojourn-run/sojourn/shared/release"
)

// settings are those of this process, with what follows from them.
type settings struct {
	*config.Config
	Sources     []config.Source
	Release     string
	ReleaseFrom string
	Log         zerolog.Logger
}

// settings reads the settings of a command, sets up its log and reports what is odd.
func (p *program) settings(c *cobra.Command) (*settings, error) {
	cfg, sources, warnings, err := config.Load(c.Flags(), p.environ, "")
	if err != nil {
		return nil, usageError{err}
	}
	s := &settings{Config: cfg, Sources: sources, Log: p.logger(cfg)}
	source := release.System()
	source.Setting = cfg.Release
	s.Release, s.ReleaseFrom = release.Current(source)
	for _, w := range warnings {
		s.Log.Warn().Msg(string(w))
	}
	if s.Release == release.Unreadable {
		s.Log.Error().Msg("no release could be read; identical pairs still match, unless SOJOURN_RELEASE_STRICT is set")
	}
	return s, nil
}

func (p *program) logger(cfg *config.Config) zerolog.Logger {
	var w io.Writer = p.err
	if cfg.LogFormat == "console" {
		w = zerolog.ConsoleWriter{Out: p.err, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != "" || !terminal(p.err)}
	}
	level, err := zerolog.ParseLevel(cfg.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
