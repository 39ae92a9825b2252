package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/config"
)

// maxEpochFloor is the largest integer that JavaScript workers read without loss.
const maxEpochFloor = 1<<53 - 1

// releaseSessions releases all sessions of a database that was restored from a backup. It opens the database itself,
// because no app may serve the database before its sessions are released.
func (p *program) releaseSessions() *cobra.Command {
	var all bool
	var floor int64
	c := &cobra.Command{
		Use: "release --all", Args: noArgs,
		Short: "Release all sessions of a restored database before the first app starts",
		Long: "Release all sessions of all namespaces and raise the epoch floors, after the database was restored from a " +
			"backup and before the first app starts. Epochs assigned after the backup are then never assigned again. " +
			"The command opens the database itself; stop the apps first.",
		RunE: func(c *cobra.Command, _ []string) error {
			if !all {
				return usageError{errors.New("--all is required; to move one session, use: sojourn sessions migrate ID")}
			}
			if floor < 0 || floor > maxEpochFloor {
				return usageError{fmt.Errorf("--epoch-floor must be between 0 and %d", int64(maxEpochFloor))}
			}
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			if err := s.keepPrivate(); err != nil {
				return err
			}
			st, err := s.openStore(c.Context(), "restore", dispatch.New(dispatch.Options{}))
			if err != nil {
				return err
			}
			return errors.Join(p.releaseAll(c.Context(), st, floor), st.Close())
		},
	}
	config.Register(c.Flags(), config.App)
	c.Flags().BoolVar(&all, "all", false, "all sessions of all namespaces; required")
	c.Flags().Int64Var(&floor, "epoch-floor", 0,
		"lowest epoch floor, in microseconds since 1970: the highest epoch that an outside fence has seen; "+
			"the floor is the database's clock if that is larger")
	return c
}

func (p *program) releaseAll(ctx context.Context, st store.Store, floor int64) error {
	var list []store.Namespace
	err := st.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Namespaces(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, ns := range list {
		n, at, err := broker.ReleaseAll(ctx, st, ns.Name, floor)
		if err != nil {
			return fmt.Errorf("namespace %s: %w", ns.Name, err)
		}
		fmt.Fprintf(p.out, "namespace %s: %d sessions released, epoch floor %d\n", ns.Name, n, at)
	}
	return nil
}
