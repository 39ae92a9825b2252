package worker

import (
	"context"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// watchEvery is the interval at which a worker checks the modification times of its handlers.
const watchEvery = 500 * time.Millisecond

// watch polls the folder of handlers until ctx ends. It offers new handlers and reports changed handlers to the app.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var reading sync.WaitGroup
	defer reading.Wait()
	was := treeStamp(w.opt.Handlers)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := treeStamp(w.opt.Handlers)
		if now == was {
			continue
		}
		was = now
		found, err := FindHandlers(w.opt.Handlers, w.opt.Registry, w.pool.Report().Runtimes)
		if err != nil {
			w.log.Warn().Err(err).Msg("failed to reload handlers; the previous handlers stay active")
			continue
		}
		before, sessions := w.handlerVersions(), w.sessionDefinitions()
		w.setHandlers(found)
		after := w.handlerVersions()
		if maps.Equal(before, after) && slices.Equal(sessions, w.sessionDefinitions()) {
			continue
		}
		var changed []string
		for name, version := range after {
			if before[name] != version {
				changed = append(changed, name)
			}
		}
		w.log.Info().Strs("changed", changed).Msg("handlers reloaded: " + found.String())
		if err := w.link.Reregister(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Msg("failed to register the changed handlers; retrying")
			was = "" // try again at the next check
		}
		reading.Go(func() { w.findHandOvers(ctx) })
	}
}

// treeStamp returns a value that changes when a file below dir is added, removed or written. It ignores installed
// packages.
func treeStamp(dir string) string {
	sum := fnv.New64a()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile: the next look sees what is there
		}
		if d.IsDir() {
			if path != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "__pycache__") {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := d.Info(); err == nil {
			fmt.Fprintf(sum, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return fmt.Sprint(sum.Sum64())
}
