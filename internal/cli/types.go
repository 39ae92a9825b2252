package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/sandbox"
)

func (p *program) typesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "types [DIR]", Short: "Write the types of handlers' contexts, for editors and type checkers",
		Long: "Write sojourn.d.ts and sojourn.pyi into a directory of handlers, by default the current one: the types of a handler's\n" +
			"second argument, its context, for TypeScript (also JavaScript with JSDoc) and Python. Files of other releases are\n" +
			"overwritten. A tsconfig.json is added if none exists. Handlers run without these files.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErr(c, errors.New("at most one directory is allowed"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return p.writeTypes(dir)
		},
	}
}

func (p *program) writeTypes(dir string) error {
	files, err := fs.ReadDir(sandbox.Types, ".")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := fs.ReadFile(sandbox.Types, f.Name())
		if err != nil {
			return err
		}
		path := filepath.Join(dir, f.Name())
		action := "wrote"
		switch was, err := os.ReadFile(path); {
		case err == nil && bytes.Equal(was, text):
			action = "unchanged"
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		default:
			if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // code, for whoever reads the folder
				return err
			}
		}
		fmt.Fprintln(p.out, action, path)
	}
	path := filepath.Join(dir, "tsconfig.json")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // code, as above
	switch {
	case errors.Is(err, fs.ErrExist):
		fmt.Fprintln(p.out, "unchanged", path) // was created by a user
		return nil
	case err == nil:
		_, err = f.Write(sandbox.TSConfig)
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		fmt.Fprintln(p.out, "wrote", path)
	}
	return err
}
