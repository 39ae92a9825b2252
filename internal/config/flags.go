package config

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

const configFlag = "config"

// ignoreFlag changes errors for unknown names in the environment and the file to warnings.
const ignoreFlag = "ignore-unknown-settings"

// roleNote is the annotation of --config, a flag of every set, in which Register stores the role for Load.
const roleNote = "sojourn_role"

// Register adds the flags of a role, including --config, with the role's defaults. Any has all flags. A flag's value is
// checked when it is parsed; nothing is stored until Load.
func Register(flags *pflag.FlagSet, role Role) {
	flags.String(configFlag, "", "YAML file with settings, named like the flags")
	flags.Bool(ignoreFlag, false, "warn about unknown settings in the environment and the file instead of exiting, for rollbacks")
	_ = flags.SetAnnotation(configFlag, roleNote, []string{string(role)}) // the flag exists: it was added above
	for _, s := range settings {
		if role != Any && !slices.Contains(s.roles, role) {
			continue
		}
		preset := s.defaultFor(role)
		if preset == "" {
			preset = s.value
		}
		f := flags.VarPF(&flagValue{kind: s.kind, text: preset}, s.name, "", s.help)
		if s.kind == flag {
			f.NoOptDefVal = "true"
		}
		if s.former != "" {
			flags.VarPF(&flagValue{kind: s.kind, text: preset}, s.former, "", "deprecated: use --"+s.name).Hidden = true
		}
	}
}

// roleOf returns the role that a flag set was registered for.
func roleOf(flags *pflag.FlagSet) Role {
	if flags == nil {
		return Any
	}
	f := flags.Lookup(configFlag)
	if f == nil || len(f.Annotations[roleNote]) == 0 {
		return Any
	}
	return Role(f.Annotations[roleNote][0])
}

// flagValue is the value of a flag of one of the kinds, stored as text.
type flagValue struct {
	kind kind
	text string
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.kind.String() }

func (v *flagValue) Set(text string) error {
	if _, err := v.kind.parse(text); err != nil {
		return err
	}
	v.text = text
	return nil
}

// Write prints sources as a table: name, value, source.
func Write(w io.Writer, sources []Source) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tFROM")
	for _, s := range sources {
		value := s.Value
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Name, value, s.From)
	}
	return tw.Flush()
}
