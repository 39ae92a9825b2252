package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Print every setting with its value and source", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, sources, warnings, err := config.Load(c.Flags(), p.environ, "")
			if sources != nil {
				if err := config.Write(p.out, sources); err != nil {
					return err
				}
			}
			for _, w := range warnings {
				fmt.Fprintln(p.err, "warning:", string(w))
			}
			if err != nil {
				return usageError{err}
			}
			return nil
		},
	}
	config.Register(c.Flags(), config.Any)
	return c
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the release, its source, and the build information of this binary", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			r, from := release.Current(release.System())
			_, err := fmt.Fprintf(p.out, "sojourn %s (from %s), %s %s/%s, channel protocol %d\n",
				r, from, runtime.Version(), runtime.GOOS, runtime.GOARCH, protocol.ChannelVersion)
			return err
		},
	}
}
