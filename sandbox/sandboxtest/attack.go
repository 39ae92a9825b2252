package sandboxtest

// Aim describes the surroundings of an attacking handler.
type Aim struct {
	Worker  int    `json:"worker"`  // pid
	Other   int    `json:"other"`   // pid of another executor
	Secret  string `json:"secret"`  // file of the worker's
	Foreign string `json:"foreign"` // file in another executor's scratch folder
	Folder  string `json:"folder"`  // folder of the worker
	Code    string `json:"code"`    // file of a handler
	Scratch string `json:"scratch"` // scratch folder of the attacker

	Abstract string `json:"abstract"` // sockets on which the worker listens
	Named    string `json:"named"`
	TCP      string `json:"tcp"`
}

// Attack is a row of the list: an attempt, and the levels at which it must fail.
type Attack struct {
	Name              string
	Process, Confined bool // levels at which the attempt must be refused
	ABI               int  // Landlock ABI from which level confined refuses it; 0: all
	Works             bool // must not be refused, because ordinary code needs it
}

// Attacks is the list.
var Attacks = []Attack{
	{Name: "own folder", Works: true},
	{Name: "runtime and code", Works: true},
	{Name: "child process", Works: true},
	{Name: "what the machine is", Works: true},

	{Name: "secret in the environment", Process: true, Confined: true},
	{Name: "environment of the worker", Process: true, Confined: true},
	{Name: "environment of the first process", Confined: true},
	{Name: "environment of another executor", Confined: true},
	{Name: "command lines", Confined: true},
	{Name: "memory of the worker", Process: true, Confined: true},
	{Name: "memory of the worker by process_vm_readv", Process: true, Confined: true},
	{Name: "ptrace", Process: true, Confined: true},
	{Name: "ptrace of another executor", Confined: true},
	{Name: "descriptor of the worker", Process: true, Confined: true},
	{Name: "limits of the worker", Confined: true},
	{Name: "signal to the worker", Confined: true, ABI: 6},
	{Name: "signal to another executor", Confined: true, ABI: 6},
	{Name: "secret file", Confined: true},
	{Name: "secret file through the worker's root", Process: true, Confined: true},
	{Name: "another executor's file", Confined: true},
	{Name: "change another executor's file", Confined: true},
	{Name: "remove another executor's file", Confined: true},
	{Name: "take another executor's file", Confined: true},
	{Name: "names in another executor's folder", Confined: true},
	{Name: "write in another executor's folder", Confined: true},
	{Name: "symbolic link to another executor's file", Confined: true},
	{Name: "another executor's file through its folder", Confined: true},
	{Name: "names in the folder of all executors", Confined: true},
	{Name: "memory of another executor", Confined: true},
	{Name: "descriptor of another executor", Confined: true},
	{Name: "limits of another executor", Confined: true},
	{Name: "priority of another executor", Confined: true},
	{Name: "write in /etc", Confined: true},
	{Name: "write in /usr", Confined: true},
	{Name: "write in /var/tmp", Confined: true},
	{Name: "write in /tmp", Confined: true},
	{Name: "write in /dev/shm", Confined: true},
	{Name: "write in the worker's folder", Confined: true},
	{Name: "change code", Confined: true},
	{Name: "lease of code", Confined: true},
	{Name: "hard link to the secret", Confined: true},
	{Name: "symbolic link to the secret", Confined: true},
	{Name: "open descriptors", Process: true, Confined: true},
	{Name: "core dumps", Process: true, Confined: true},
	{Name: "capabilities", Process: true, Confined: true},
	{Name: "mount", Process: true, Confined: true},
	{Name: "bpf", Confined: true},
	{Name: "perf", Confined: true},
	{Name: "io_uring", Confined: true},
	{Name: "keyctl", Confined: true},
	{Name: "userfaultfd", Confined: true},
	{Name: "memory of System V", Confined: true},
	{Name: "semaphores of System V", Confined: true},
	{Name: "messages of System V", Confined: true},
	{Name: "another's semaphores of System V", Confined: true},
	{Name: "another's messages of System V", Confined: true},
	{Name: "what semaphores there are", Confined: true},
	{Name: "what is mounted", Confined: true},
	{Name: "attributes of code", Confined: true},
	{Name: "another protocol over TCP", Confined: true},
	{Name: "pages of the worker", Confined: true},
	{Name: "message queue", Confined: true},
	{Name: "asynchronous IO of the machine", Confined: true},
	{Name: "priority of the worker", Confined: true},
	{Name: "priority of its user's processes", Confined: true},
	{Name: "processors of the worker", Confined: true},
	{Name: "IO priority of the worker", Confined: true},
	{Name: "hide from the supervisor", Confined: true},
	{Name: "names in the worker's folder by inotify", Confined: true},
	{Name: "open by handle", Confined: true},
	{Name: "user namespace", Confined: true},
	{Name: "user namespace by clone", Confined: true},
	{Name: "core pattern", Confined: true},
	{Name: "sysrq", Confined: true},
	{Name: "kernel settings", Confined: true},
	{Name: "devices", Confined: true},
	{Name: "another cgroup", Confined: true},
	{Name: "out of memory score", Confined: true},
	{Name: "hard limit", Process: true, Confined: true},
	{Name: "abstract socket", Confined: true, ABI: 6},
	{Name: "named socket", Confined: true, ABI: 9},
	{Name: "TCP to a service of the machine", Confined: true},
	{Name: "TCP to the metadata address", Confined: true},
	{Name: "UDP", Confined: true},
	{Name: "raw socket", Process: true, Confined: true},
	{Name: "packet socket", Process: true, Confined: true},
	{Name: "vsock", Confined: true},
	{Name: "listen", Confined: true},
	{Name: "terminal input", Confined: true},
	{Name: "another user", Process: true, Confined: true},
	{Name: "clock", Process: true, Confined: true},
	{Name: "reboot", Process: true, Confined: true},
	{Name: "kernel module", Process: true, Confined: true},
	{Name: "kexec", Process: true, Confined: true},
}
