package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/sojourn-run/sojourn/internal/suggest"
)

// settingsLayer contains the settings of one source, as text.
type settingsLayer struct {
	values map[string]string
	from   func(setting) string
}

// rename moves values with the former name of a setting to its present name, unless that is set as well. It returns a
// warning about each former name.
func (l *settingsLayer) rename() (warnings []Warning) {
	for _, s := range settings {
		text, ok := l.values[s.former]
		if s.former == "" || !ok {
			continue
		}
		former := s
		former.name = s.former
		source := l.from(former)
		warnings = append(warnings, Warning(fmt.Sprintf(
			"setting %s (%s) is deprecated and will be removed in the next release; use %s", s.former, source, s.name,
		)))
		if _, both := l.values[s.name]; both {
			continue
		}
		l.values[s.name] = text
		from := l.from
		l.from = func(of setting) string {
			if of.name == s.name {
				return source
			}
			return from(of)
		}
	}
	return warnings
}

// Load reads the settings of a process. Flags override environment variables, which override the file, which overrides
// the defaults. An unknown name is an error with a suggestion; with --ignore-unknown-settings it is a warning.
//
// flags is a parsed set that Register has prepared; nil means no flags and the role of the bare binary. environ has the
// form of os.Environ; an empty variable counts as unset. path is a YAML file whose keys are the names of flags; if path
// is empty, --config or SOJOURN_CONFIG may name the file.
//
// There is one source per setting, in the order of the table. Sources that are known are also returned with an error,
// so that `sojourn config` can show them. The error joins all invalid settings, one per line, with the name, the value
// and the source of each.
func Load(flags *pflag.FlagSet, environ []string, path string) (*Config, []Source, []Warning, error) {
	role := roleOf(flags)
	given := koanf.New(".")
	if flags != nil {
		onlySet := func(f *pflag.Flag) (string, any) {
			if !f.Changed {
				return "", nil
			}
			return f.Name, f.Value.String()
		}
		if err := given.Load(posflag.ProviderWithFlag(flags, ".", nil, onlySet), nil); err != nil {
			return nil, nil, nil, fmt.Errorf("flags: %w", err)
		}
	}
	variables, warnings, err := readEnviron(environ)
	if err != nil {
		return nil, nil, nil, err
	}
	if path == "" {
		if path = given.String(configFlag); path == "" {
			path = variables.String(configFlag)
		}
	}
	var inFile settingsLayer
	if path != "" {
		more, err := readFile(path, &inFile)
		if err != nil {
			return nil, nil, warnings, err
		}
		warnings = append(warnings, more...)
	}

	if ignored := given.Bool(ignoreFlag) || variables.Bool(ignoreFlag); !ignored && len(warnings) > 0 {
		wrong := make([]error, 0, len(warnings)+1)
		for _, w := range warnings {
			wrong = append(wrong, errors.New(string(w)))
		}
		return nil, nil, nil, errors.Join(append(wrong, fmt.Errorf(
			"if they remain from a newer release after a rollback, start with --%s", ignoreFlag,
		))...)
	}
	layers := []settingsLayer{
		{texts(given), func(s setting) string { return "--" + s.name }},
		{texts(variables), setting.env},
		inFile,
	}
	for i := range layers {
		warnings = append(warnings, layers[i].rename()...)
	}
	c, sources, err := merge(role, layers)
	if err != nil {
		return nil, sources, warnings, err
	}
	return c, sources, append(warnings, advise(c)...), check(c, sources)
}

// minTokenLength is the length below which advise warns of a configured token: 16 random letters and digits have 95
// bits.
const minTokenLength = 16

// advise warns of valid settings that are not recommended.
func advise(c *Config) (warnings []Warning) {
	serves := c.Role == App || c.Role == Both
	if n := len(c.Token); serves && c.Auth == AuthToken && n > 0 && n < minTokenLength {
		warnings = append(warnings, Warning(fmt.Sprintf(
			"token has only %d characters and can be guessed, but grants full access; "+
				"use at least %d random characters, or unset it and the app generates a token", n, minTokenLength,
		)))
	}
	return warnings
}

func texts(k *koanf.Koanf) map[string]string {
	m := map[string]string{}
	for key, v := range k.All() {
		m[key] = fmt.Sprint(v)
	}
	return m
}

// readEnviron reads SOJOURN_… and warns of unknown variables.
func readEnviron(environ []string) (*koanf.Koanf, []Warning, error) {
	names := map[string]string{prefix + "CONFIG": configFlag, prefix + "IGNORE_UNKNOWN_SETTINGS": ignoreFlag}
	for _, s := range settings {
		names[s.env()] = s.name
		if s.former != "" {
			names[variable(s.former)] = s.former
		}
	}
	var warnings []Warning
	k := koanf.New(".")
	err := k.Load(env.Provider(".", env.Opt{
		Prefix:      prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key, known := names[name]
			if !known && !isForeign(name) {
				near := suggest.Name(name, slices.Sorted(maps.Keys(names)))
				warnings = append(warnings, Warning(fmt.Sprintf("unknown variable %s%s", name, suggest.Ending(near))))
			}
			if value == "" {
				return "", nil
			}
			return key, value
		},
	}), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("environment: %w", err)
	}
	slices.Sort(warnings)
	return k, warnings, nil
}

// CodecTokenVariable is the variable with the viewer's access token for codec endpoints. It is no setting, because the
// token must not become part of anything that is sent to an app.
const CodecTokenVariable = prefix + "CODEC_TOKEN"

// CodecEndpointVariable is the variable with the URL of the codec endpoint that may receive the token. Without it, an
// administrator of the app could set another endpoint for a namespace and receive the tokens of all viewers.
const CodecEndpointVariable = prefix + "CODEC_ENDPOINT"

// isForeign reports whether a variable with the prefix is not a setting: Kubernetes sets variables for every Service of
// a namespace (for a Service named sojourn SOJOURN_SERVICE_HOST, SOJOURN_PORT_7700_TCP …), Sojourn's tests use some,
// and the command line reads the token for codec endpoints.
func isForeign(name string) bool {
	return strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT") ||
		strings.HasPrefix(name, prefix+"TEST_") || name == CodecTokenVariable ||
		name == CodecEndpointVariable
}

func readFile(path string, into *settingsLayer) ([]Warning, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return nil, fmt.Errorf("settings file %s: %w", path, err)
	}
	var warnings []Warning
	var wrong []error
	into.values = map[string]string{}
	into.from = func(setting) string { return "file " + path }
	for key, raw := range k.Raw() {
		s, known := find(key)
		if !known {
			names := make([]string, len(settings))
			for i, s := range settings {
				names[i] = s.name
			}
			slices.Sort(names)
			ending := suggest.Ending(suggest.Name(key, names))
			warnings = append(warnings, Warning(fmt.Sprintf("unknown setting %s in file %s%s", key, path, ending)))
			continue
		}
		value, err := fromFile(s.kind, raw)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s (file %s): %w", key, path, err))
			continue
		}
		if value != "" {
			into.values[key] = value
		}
	}
	slices.Sort(warnings)
	return warnings, errors.Join(wrong...)
}

// merge uses, for each setting, the first layer that has it, parses the value, and derives missing values.
func merge(role Role, layers []settingsLayer) (*Config, []Source, error) {
	if role == Any {
		role = Both // preliminary: the role is known after container-type, whose default does not depend on the role
		for _, l := range layers {
			if v, ok := l.values["container-type"]; ok {
				role = containerRole(v)
				break
			}
		}
	}
	var sources []Source
	var wrong []error
	values := map[string]any{}
	for _, s := range settings {
		text, from := s.defaultFor(role), "default"
		for _, l := range layers {
			if v, ok := l.values[s.name]; ok {
				text, from = v, l.from(s)
				break
			}
		}
		sources = append(sources, Source{Name: s.name, Env: s.env(), Value: s.shown(text), From: from})
		if s.derive != nil && text == "" {
			continue
		}
		v, err := s.kind.parse(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s (%s): %w", s.name, from, err))
			continue
		}
		values[s.name] = v
		sources[len(sources)-1].Value = s.shown(formatValue(v))
	}
	if len(wrong) > 0 {
		return nil, sources, errors.Join(wrong...)
	}

	c := &Config{Role: role}
	if err := decode(values, c); err != nil {
		return nil, sources, err
	}
	derived := map[string]any{}
	for i, s := range settings {
		if _, has := values[s.name]; has {
			continue
		}
		text := s.derive(c)
		v, err := s.kind.parse(text)
		if err != nil {
			return nil, sources, fmt.Errorf("%s (derived): %w", s.name, err)
		}
		derived[s.name] = v
		sources[i].Value = s.shown(text)
	}
	if err := decode(derived, c); err != nil {
		return nil, sources, err
	}
	for i, url := range c.AppURLs {
		c.AppURLs[i] = strings.TrimRight(url, "/")
	}
	return c, sources, nil
}

func decode(values map[string]any, c *Config) error {
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(values, ""), nil); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if err := k.Unmarshal("", c); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

// containerRole returns the role of the binary without a subcommand; check refuses an unknown type.
func containerRole(containerType string) Role {
	switch containerType {
	case ContainerApp:
		return App
	case ContainerWorker:
		return Worker
	default:
		return Both
	}
}

func (s setting) shown(v string) string {
	if s.secret != nil {
		return s.secret(v)
	}
	return v
}
