package worker

import "github.com/sojourn-run/sojourn/sandbox"

// Limits are the limits of an executor, together with the processes that its code starts. 0 means the default of the
// runtime, unless the field says otherwise.
type Limits struct {
	Memory       int64 // bytes of resident memory of all its processes together
	Data         int64 // bytes of heap of each process; 0: Memory plus 64 MiB; negative: no limit
	FileSize     int64 // bytes of one file
	OpenFiles    int   // file descriptors of each process
	Processes    int   // number of processes
	Threads      int   // number of threads of all its processes; 0: 16 times Processes
	ScratchBytes int64 // bytes in the scratch folder
	ScratchFiles int   // number of files in the scratch folder
	// Processors is the number of processors that the executor may use at once, if a control group limits them; 0: all.
	Processors float64
}

// Packages is the setting for the installation of npm and Python packages that handlers need.
type Packages string

// The values of Packages; the default is InstallPackages.
const (
	InstallPackages    Packages = "install" // run no code of the packages: no scripts of npm, only wheels of Python
	InstallWithScripts Packages = "scripts" // run the installation scripts of the packages
	InstallNoPackages  Packages = "none"
)

// RunExecutor runs this process as an executor of isolated activities and session definitions, if a worker of this
// program started it as one, and then never returns; otherwise it returns at once. A program that uses New and isolates
// some of them must call it first in main, and first in TestMain of its tests. Main and sojourn.Main call it
// themselves.
func RunExecutor(r *Registry) { sandbox.Main(isolatedActivities(r)) }

// limits returns the limits of executors in the form of package sandbox.
func (o Options) limits() map[string]sandbox.Limits {
	if o.Limits == nil {
		return nil
	}
	all := make(map[string]sandbox.Limits, len(o.Limits))
	for runtime, l := range o.Limits {
		all[runtime] = sandbox.Limits(l)
	}
	return all
}
