package cli

import (
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/internal/release"
)

// settings are the configuration of this process, with derived values.
type settings struct {
	*config.Config
	Sources     []config.Source
	Release     string
	ReleaseFrom string
	Log         zerolog.Logger
}

// settings reads the settings of a command, sets up its log and logs warnings about suspicious settings.
func (p *program) settings(c *cobra.Command) (*settings, error) {
	cfg, sources, warnings, err := config.Load(c.Flags(), p.environ, "")
	if err != nil {
		return nil, usageError{err}
	}
	s := &settings{Config: cfg, Sources: sources, Log: process.Logger(p.err, cfg.LogLevel, cfg.LogFormat)}
	source := release.System()
	source.Setting = cfg.Release
	s.Release, s.ReleaseFrom = release.Current(source)
	for _, w := range warnings {
		s.Log.Warn().Msg(string(w))
	}
	if s.Release == release.Unreadable {
		s.Log.Error().Msg("no release is set; an app and a worker that both lack a release still match unless SOJOURN_RELEASE_STRICT is set")
	}
	return s, nil
}
