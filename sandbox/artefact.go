package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OpenArtefact opens a regular file that a session's handler left in its scratch folder, for reading. Runtime picks the
// executor when the session has several. Code in the session may put anything there, so a name or a link that leads out
// of the folder is refused, and so is what is not a regular file. Errors wrap fs.ErrNotExist when there is no such
// session or file.
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
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not hold us up
	if err != nil {
		return nil, fmt.Errorf("artefact: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("artefact %s: not a regular file", name)
	}
	return f, nil
}
