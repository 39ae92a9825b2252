//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// stage is a build stage: the instructions from one FROM to the next.
type stage struct {
	name, from string
	steps      []step
}

// step is one instruction, such as RUN or COPY, with its arguments; continued lines are joined.
type step struct {
	line       int
	name, args string
}

func (s step) String() string { return fmt.Sprintf("line %d: %s %s", s.line, s.name, s.args) }

// known are the supported instructions. Any other instruction is an error: if it were ignored, the image
// would differ from that of a container engine.
var known = []string{
	"FROM", "ARG", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT",
}

// parse reads a Dockerfile.
func parse(text string) ([]stage, error) {
	var stages []stage
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' {
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + strings.TrimSpace(lines[i])
		}
		name, args, _ := strings.Cut(line, " ")
		s := step{line: at, name: name, args: strings.TrimSpace(args)}
		if !slices.Contains(known, s.name) {
			return nil, fmt.Errorf("%s: unknown instruction", s)
		}
		if s.name != "FROM" {
			if len(stages) == 0 {
				return nil, fmt.Errorf("%s: instruction before the first FROM", s)
			}
			last := &stages[len(stages)-1]
			last.steps = append(last.steps, s)
			continue
		}
		words := strings.Fields(s.args)
		switch {
		case len(words) == 1:
			stages = append(stages, stage{from: words[0]})
		case len(words) == 3 && strings.EqualFold(words[1], "as"):
			stages = append(stages, stage{name: words[2], from: words[0]})
		default:
			return nil, fmt.Errorf("%s: invalid FROM; want FROM IMAGE [AS NAME]", s)
		}
	}
	if len(stages) == 0 {
		return nil, fmt.Errorf("the Dockerfile has no FROM")
	}
	return stages, nil
}

// final returns the steps of the last stage and the stages below it, and the base image.
func final(stages []stage) (steps []step, from string) {
	last := stages[len(stages)-1]
	steps, from = last.steps, last.from
	for i := len(stages) - 2; i >= 0; i-- {
		if s := stages[i]; s.name == from {
			steps, from = append(slices.Clone(s.steps), steps...), s.from
		}
	}
	return steps, from
}

// image is the configuration of an image: the instructions that change no file.
type image struct {
	args        []string // variables of RUN
	env         []string
	user        string
	dir         string
	volume      string
	entrypoint  []string
	healthcheck []string
}

// configure applies an instruction that changes no file.
func (m *image) configure(s step) error {
	switch s.name {
	case "ENV":
		for _, pair := range strings.Fields(s.args) {
			if !strings.Contains(pair, "=") || strings.ContainsAny(pair, `"'$`) {
				return fmt.Errorf("%s: want NAME=VALUE without quotes and variables", s)
			}
			m.env = append(m.env, pair)
		}
	case "ARG":
		m.args = append(m.args, s.args)
	case "USER":
		m.user = s.args
	case "WORKDIR":
		m.dir = s.args
	case "VOLUME":
		m.volume = s.args
	case "ENTRYPOINT":
		return words(s, s.args, &m.entrypoint)
	case "HEALTHCHECK":
		_, command, _ := strings.Cut(s.args, "CMD ")
		return words(s, command, &m.healthcheck)
	}
	return nil
}

// words parses the exec form of a command, a JSON array.
func words(s step, text string, into *[]string) error {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("%s: want a JSON array: %w", s, err)
	}
	return nil
}
