// Package lockdown confines a thread and the programs it starts with Landlock and seccomp.
//
// Neither needs privileges, so confinement also works in containers. [Offered] returns the features that the running
// kernel supports.
//
// The restrictions apply to one thread, not to the whole process: the process that starts a confined program must be
// able to signal the program, but the program must not be able to signal the process. See [Apart].
package lockdown

import (
	"path/filepath"
	"strings"
)

// Rules lists the resources that a thread and its descendants may use.
type Rules struct {
	Read    []string `json:"read,omitempty"`    // files and trees: open for reading, list, execute
	Write   []string `json:"write,omitempty"`   // files and trees: everything, except making devices; they must be there
	Devices []string `json:"devices,omitempty"` // device files: read and write
	Inet    bool     `json:"inet,omitempty"`    // sockets of IPv4 and IPv6, TCP and UDP; without it there are none
	// Ports leave of Inet only TCP, and of that only connections to these ports, of whichever machine. It needs ABI 4.
	Ports []uint16 `json:"ports,omitempty"`
	// NoMemoryFiles refuses files in memory (memfd), whose pages count towards no process as long as they are not
	// mapped.
	NoMemoryFiles bool `json:"no_memory_files,omitempty"`

	// ABI to use, at most what is offered; 0 leaves files and processes as they are
	Landlock int  `json:"landlock,omitempty"`
	Filter   bool `json:"filter,omitempty"` // filter system calls; Inet is nothing without it
}

// Kernel is what the kernel offers to this process.
type Kernel struct {
	Landlock int  // the ABI; 0 when there is none, or when the process may not use it
	Filter   bool // seccomp filters
}

// The ABIs of Landlock by what they brought.
const (
	abiRename   = 2 // moving between folders
	abiTruncate = 3 // cutting files off
	abiNet      = 4 // ports of TCP
	abiIoctl    = 5 // commands to devices
	abiScope    = 6 // signals and abstract sockets
	abiUnix     = 9 // sockets with a name in a folder
)

// HoldsTruncate says whether the rules keep files that may be read from being cut off.
func (r Rules) HoldsTruncate() bool { return r.Landlock >= abiTruncate }

// HoldsPorts says whether the kernel keeps a program to ports of TCP.
func (k Kernel) HoldsPorts() bool { return k.Landlock >= abiNet && k.Filter }

// HoldsSignals says whether the rules keep signals and abstract sockets inside.
func (r Rules) HoldsSignals() bool { return r.Landlock >= abiScope }

// HoldsNamedSockets says whether the rules keep the program from sockets that have a name in a folder.
func (r Rules) HoldsNamedSockets() bool { return r.Landlock >= abiUnix }

// Covers says whether the rules allow a path to be opened, for writing or else for reading. Only the names are looked
// at, where links lead included; the rights of the file itself may still refuse it.
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

// real is where a path leads: the part of it that is there with its links followed, and the rest as it stands.
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
