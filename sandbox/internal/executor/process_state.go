package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// processState is the state of the process that is restored between calls outside sessions, as it was before the first
// of them: environment, working directory, umask, descriptors, an empty scratch folder. The state of Go is not
// restored: package variables, goroutines.
type processState struct {
	scratch string
	dir     string
	environ []string
	process
}

// captureProcessState records the state of the process. It must be called before the first call.
func captureProcessState(scratch string) (*processState, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	s := &processState{scratch: scratch, dir: dir, environ: os.Environ()}
	return s, s.record()
}

// restore undoes the changes of calls. No call may run meanwhile.
func (s *processState) restore() error {
	if err := os.Chdir(s.dir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if err := s.restoreEnviron(); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	if err := s.process.restore(); err != nil {
		return err
	}
	if s.scratch == "" {
		return nil
	}
	entries, err := os.ReadDir(s.scratch)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.scratch, e.Name())))
	}
	if err != nil {
		return fmt.Errorf("scratch folder: %w", err)
	}
	return nil
}

func (s *processState) restoreEnviron() error {
	if slices.Equal(os.Environ(), s.environ) {
		return nil
	}
	os.Clearenv()
	for _, entry := range s.environ {
		for i := 1; i < len(entry); i++ { // a name may begin with '='
			if entry[i] == '=' {
				if err := os.Setenv(entry[:i], entry[i+1:]); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}
