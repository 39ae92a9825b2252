package suggest

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Flag replaces the error for an unknown flag by one that suggests the nearest visible flag. Other errors are returned
// unchanged.
func Flag(flags *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 2 { // -x is a short flag
		return err
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := Name(unknown.GetSpecifiedName(), names)
	if near != "" {
		near = "--" + near
	}
	return fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), Ending(near))
}
