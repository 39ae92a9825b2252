// Package lockdown confines a thread and the programs it starts with Landlock and seccomp.
//
// Neither needs privileges, so confinement also works in containers. [Offered] returns the features that the running
// kernel supports.
//
// The restrictions apply to one thread, not to the whole process: the process that starts a confined program must be
// able to signal the program, but the program must not be able to signal the process. See [OnOwnThread].
package lockdown

import (
	"path/filepath"
	"strings"
)

// Rules lists the resources that a thread and its descendants may use.
type Rules struct {
	Read []string `json:"read,omitempty"` // files and folders, with everything below: open for reading, list, execute
	// files and folders with full access, except that devices cannot be created; they must exist
	Write   []string `json:"write,omitempty"`
	Devices []string `json:"devices,omitempty"` // device files that may be read and written
	Inet    bool     `json:"inet,omitempty"`    // IPv4 and IPv6 sockets, TCP and UDP; false: none
	// Ports restricts Inet to TCP connections to these ports, on any machine. It needs Landlock ABI 4.
	Ports []uint16 `json:"ports,omitempty"`
	// NoMemoryFiles refuses files in memory (memfd), whose pages count towards no process as long as they are not
	// mapped.
	NoMemoryFiles bool `json:"no_memory_files,omitempty"`

	// version of the Landlock ABI to use, at most the offered one; 0: files and processes are not restricted
	Landlock int  `json:"landlock,omitempty"`
	Filter   bool `json:"filter,omitempty"` // filter system calls; Inet has no effect without it
}

// Kernel lists the features that the kernel offers to this process.
type Kernel struct {
	Landlock int  // version of the ABI; 0 if it is unsupported or the process may not use it
	Filter   bool // seccomp filters
}

// These are Landlock ABI versions, named by the feature that they introduced.
const (
	abiRename   = 2 // moving between folders
	abiTruncate = 3 // truncating files
	abiNet      = 4 // ports of TCP
	abiIoctl    = 5 // ioctl commands to devices
	abiScope    = 6 // signals and abstract sockets
	abiUnix     = 9 // Unix sockets in the file system
)

// HoldsTruncate reports whether the rules prevent truncating files that are only readable.
func (r Rules) HoldsTruncate() bool { return r.Landlock >= abiTruncate }

// HoldsPorts reports whether the kernel can restrict a program to TCP ports.
func (k Kernel) HoldsPorts() bool { return k.Landlock >= abiNet && k.Filter }

// HoldsSignals reports whether the rules block signals and connections to abstract sockets outside the domain.
func (r Rules) HoldsSignals() bool { return r.Landlock >= abiScope }

// HoldsNamedSockets reports whether the rules block connections to Unix sockets in the file system.
func (r Rules) HoldsNamedSockets() bool { return r.Landlock >= abiUnix }

// Covers reports whether the rules allow opening a path, for writing or otherwise for reading. It checks only the path,
// with links resolved; the permissions of the file may still deny access.
func (r Rules) Covers(path string, write bool) bool {
	path = real(path)
	lists := [][]string{r.Write, r.Devices}
	if !write {
		lists = append(lists, r.Read)
	}
	for _, list := range lists {
		for _, root := range list {
			if Below(path, real(root)) {
				return true
			}
		}
	}
	return false
}

// Below reports whether path is folder or lies below it. It compares the names and does not follow links.
func Below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// real returns a path with the symbolic links in its existing part resolved.
func real(path string) string {
	path = filepath.Clean(path)
	if followed, err := filepath.EvalSymlinks(path); err == nil {
		return followed
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(real(parent), filepath.Base(path))
}
