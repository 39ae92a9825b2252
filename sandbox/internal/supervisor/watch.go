//go:build unix

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// These are the intervals of the watchdog's checks.
const (
	nearLimitInterval = 50 * time.Millisecond  // while a call runs and memory is above half its limit
	busyInterval      = 100 * time.Millisecond // while a call runs
	idleInterval      = 500 * time.Millisecond // while no call runs
	fileCheckInterval = 5 * time.Second        // interval of the checks of files between calls
	taskCountInterval = 10 * time.Millisecond  // interval of reads of the machine's number of tasks while a call runs
)

// crowdThreshold is the increase of the machine's tasks at which the executor's tasks are counted at once.
const crowdThreshold = 32

// Sign is the maximum interval between messages of a supervisor while a call runs. A supervisor that is silent for much
// longer no longer watches its executor.
const Sign = time.Second

// watch kills all processes of the executor when a limit is exceeded, after it reported the limit to the worker.
func (m *supervisor) watch() {
	var reported, loose int64
	var scratch, reportedAt time.Time
	used := false // true after the first call: before it, no user code runs
	pause := busyInterval
	for {
		select {
		case <-m.killed:
			return
		case <-m.poke:
		case <-time.After(pause):
		}
		if m.outOfMemory() {
			m.kill()
			return
		}
		pids := descendants(m.pid, 0)
		all := m.usage(pids)
		resident, held := m.Group.Use()
		if !held {
			resident = all.resident + all.tables + loose
		}
		if resident > m.peak.Load() {
			m.peak.Store(resident)
		}
		if m.Memory > 0 && resident > m.Memory && !held {
			m.oom.Do(func() { m.report(Fact{T: FactOOM, Bytes: resident, By: Watchdog}) })
			m.kill()
			return
		}
		if m.Threads > 0 && all.threads > m.Threads {
			m.report(Fact{T: FactQuota, Error: fmt.Sprintf("%d threads exceed the limit of %d", all.threads, m.Threads)})
			m.kill()
			return
		}
		d, now := resident-reported, time.Now()
		if d > 1<<20 || d < -1<<20 || m.busy.Load() && now.Sub(reportedAt) >= Sign {
			reported, reportedAt = resident, now
			m.report(Fact{T: FactMemory, Bytes: resident})
		}
		used = used || m.busy.Load()
		if last := now.Sub(scratch); used && (last >= fileCheckInterval || m.busy.Load() && last >= idleInterval) {
			scratch = now
			var removed int64
			asUser(m.User, func() { loose, removed = unlinkedFileSizes(pids) })
			if exceeded := m.scratchExceeded(removed); exceeded != "" {
				m.report(Fact{T: FactQuota, Error: exceeded})
				m.kill()
				return
			}
		}
		switch {
		case !m.busy.Load():
			pause = idleInterval
		case resident > m.Memory/2:
			pause = nearLimitInterval
		default:
			pause = busyInterval
		}
	}
}

// countProcesses kills the executor when it has too many processes. It has its own goroutine, because reading the
// shared memory of a process waits in the kernel while that process forks, so a fork bomb would block the watchdog.
// While a call runs, it counts as soon as the machine has many more tasks than before, since a fork bomb doubles in
// milliseconds; reading the machine's number of tasks is one system call.
func (m *supervisor) countProcesses() {
	for m.Processes > 0 {
		before, end := tasks(), time.Now().Add(busyInterval)
		for crowded := false; !crowded && time.Now().Before(end); crowded = tasks() > before+crowdThreshold {
			pause := idleInterval
			if m.busy.Load() {
				pause = taskCountInterval
			}
			select {
			case <-m.killed:
				return
			case <-m.began:
			case <-time.After(pause):
			}
		}
		if len(descendants(m.pid, m.Processes)) > m.Processes {
			m.report(Fact{T: FactQuota, Error: fmt.Sprintf("more than %d processes", m.Processes)})
			m.kill()
			return
		}
	}
}

// outOfMemory reports whether the kernel killed a process of the executor's group because of memory, and sends this
// fact once. Depending on the kernel it killed the whole group or one process; the caller must end the rest.
func (m *supervisor) outOfMemory() bool {
	k := m.Group.OutOfMemory()
	if k.Processes == 0 {
		return false
	}
	m.oom.Do(func() {
		memory, _, _ := m.Group.Limits()
		m.report(Fact{T: FactOOM, Bytes: max(k.Peak, m.peak.Load()), By: memory, Around: !k.Own})
	})
	return true
}

// usage is the sum over all processes; see supervisor.usage.
type usage struct {
	resident, tables int64
	threads          int
}

// usage returns the sums over all processes. If the sum of resident memory exceeds the limit, shared memory counts
// once: processes that were forked after loading a model share it.
func (m *supervisor) usage(pids []int) (all usage) {
	for _, pid := range pids {
		u := usageOf(pid)
		all.resident += u.resident
		all.tables += u.tables
		all.threads += u.threads
	}
	if m.Memory > 0 && all.resident+all.tables > m.Memory {
		asUser(m.User, func() {
			if shared, ok := proportional(pids); ok {
				all.resident = shared
			}
		})
	}
	return all
}

// proportional returns the resident memory of processes, with shared memory counted once. It is too slow for each
// check; it returns false if the kernel does not report it.
func proportional(pids []int) (bytes int64, ok bool) {
	for _, pid := range pids {
		n, ok := proportionalBytes(pid)
		if !ok {
			return 0, false
		}
		bytes += n
	}
	return bytes, true
}

// scratchExceeded returns how the scratch folder exceeds its limits, or an empty string. bytes is the size of removed
// files that are still open. It stops at the first exceeded limit.
func (m *supervisor) scratchExceeded(bytes int64) (exceeded string) {
	if m.ScratchBytes <= 0 && m.ScratchFiles <= 0 {
		return ""
	}
	if m.ScratchBytes > 0 && bytes > m.ScratchBytes {
		return fmt.Sprintf("more than %d bytes in files that were removed and are still open", m.ScratchBytes)
	}
	var files int
	_ = filepath.WalkDir(m.Dir, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil // removed meanwhile
		}
		if err != nil { // an unreadable folder, or a path that is too long: it may contain any number of files
			var errno syscall.Errno
			errors.As(err, &errno) // report only the error number, because the path may be very long
			exceeded = fmt.Sprintf("files in the scratch folder cannot be counted: %v", errno)
			return fs.SkipAll
		}
		files++
		if info.Mode().IsRegular() {
			bytes += allocated(info)
		}
		switch {
		case m.ScratchBytes > 0 && bytes > m.ScratchBytes:
			exceeded = fmt.Sprintf("more than %d bytes in the scratch folder", m.ScratchBytes)
		case m.ScratchFiles > 0 && files > m.ScratchFiles:
			exceeded = fmt.Sprintf("more than %d files in the scratch folder", m.ScratchFiles)
		default:
			return nil
		}
		return fs.SkipAll
	})
	return exceeded
}
