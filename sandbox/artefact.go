package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OpenArtefact opens a regular file in the scratch folder of a session, for reading. Runtime selects the executor if
// the session has several. Code in the session can create any files there, so OpenArtefact rejects names and links that
// lead out of the folder, and files that are not regular. Errors wrap fs.ErrNotExist if the session or the file does
// not exist.
func (p *Pool) OpenArtefact(session Session, runtime, name string) (*os.File, error) {
	p.mu.Lock()
	dir := ""
	if s := p.sessions[session.ID]; s != nil && (session.Epoch == 0 || s.epoch == session.Epoch) {
		if place := s.slots[runtime]; place != nil && place.ex != nil {
			dir = place.ex.scratch
		}
	}
	p.mu.Unlock()
	if dir == "" {
		return nil, fmt.Errorf("artefact %s: session %s is not held: %w", name, session.ID, fs.ErrNotExist)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("artefact %s: %w", name, err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // do not wait if it is a pipe
	if err != nil {
		return nil, fmt.Errorf("artefact: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("artefact %s: not a regular file", name)
	}
	return f, nil
}
