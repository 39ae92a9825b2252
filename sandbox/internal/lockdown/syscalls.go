package lockdown

// number is the number of a system call on the two supported architectures; absent if an architecture lacks it.
type number struct {
	name         string
	amd64, arm64 int
}

const absent = -1

// newest is the highest system call number that was reviewed for this filter. Later ones return ENOSYS: programs have
// fallbacks for new system calls, and their risks were not reviewed.
const newest = 471

// refused has the system calls that return EPERM with any arguments. No handler needs them, and each is a way to reach
// the kernel or other processes.
var refused = []number{
	// Mounts.
	{"mount", 165, 40},
	{"umount2", 166, 39},
	{"move_mount", 429, 429},
	{"open_tree", 428, 428},
	{"open_tree_attr", 467, 467},
	{"fsopen", 430, 430},
	{"fsconfig", 431, 431},
	{"fsmount", 432, 432},
	{"fspick", 433, 433},
	{"mount_setattr", 442, 442},
	{"statmount", 457, 457}, // it returns the locations of mounts
	{"listmount", 458, 458},
	{"listns", 470, 470},
	{"file_setattr", 469, 469}, // it takes a path that Landlock does not check
	{"pivot_root", 155, 41},
	{"chroot", 161, 51},
	// Namespaces: they give a program without privileges access to more parts of the kernel.
	{"unshare", 272, 97},
	{"setns", 308, 268},
	// Other processes.
	{"ptrace", 101, 117},
	{"process_vm_readv", 310, 270},
	{"process_vm_writev", 311, 271},
	{"pidfd_getfd", 438, 438},
	{"kcmp", 312, 272},
	{"process_madvise", 440, 440},
	// Large parts of the kernel.
	{"bpf", 321, 280},
	{"perf_event_open", 298, 241},
	{"userfaultfd", 323, 282},
	{"fanotify_init", 300, 262},
	{"io_uring_setup", 425, 425},
	{"io_uring_enter", 426, 426},
	{"io_uring_register", 427, 427},
	{"keyctl", 250, 219},
	{"add_key", 248, 217},
	{"request_key", 249, 218},
	{"modify_ldt", 154, absent},
	{"uselib", 134, absent},
	{"lookup_dcookie", 212, 18},
	// System V shared memory, semaphores and message queues, which all processes share and which outlive their
	// creators.
	{"shmget", 29, 194},
	{"shmat", 30, 196},
	{"shmctl", 31, 195},
	{"semget", 64, 190},
	{"semop", 65, 193}, // objects of other processes can be used by their number
	{"semtimedop", 220, 192},
	{"semctl", 66, 191},
	{"msgget", 68, 186},
	{"msgsnd", 69, 189},
	{"msgrcv", 70, 188},
	{"msgctl", 71, 187},
	{"mq_open", 240, 180},
	{"mq_unlink", 241, 181},
	{"io_setup", 206, 0}, // the number is limited for the whole machine
	// File notifications: they need only a path, even of an unreadable file.
	{"inotify_init", 253, absent},
	{"inotify_init1", 294, 26},
	{"inotify_add_watch", 254, 27},
	// Access to files without a path.
	{"open_by_handle_at", 304, 265},
	// System calls that affect the whole machine.
	{"kexec_load", 246, 104},
	{"kexec_file_load", 320, 294},
	{"reboot", 169, 142},
	{"create_module", 174, absent},
	{"init_module", 175, 105},
	{"finit_module", 313, 273},
	{"delete_module", 176, 106},
	{"swapon", 167, 224},
	{"swapoff", 168, 225},
	{"acct", 163, 89},
	{"quotactl", 179, 60},
	{"quotactl_fd", 443, 443},
	{"settimeofday", 164, 170},
	{"clock_settime", 227, 112},
	{"clock_adjtime", 305, 266},
	{"adjtimex", 159, 171},
	{"sethostname", 170, 161},
	{"setdomainname", 171, 162},
	{"syslog", 103, 116},
	{"vhangup", 153, 58},
	{"iopl", 172, absent},
	{"ioperm", 173, absent},
	// Listening for connections.
	{"listen", 50, 201},
}

// System calls that depend on their arguments, or return another error.
var (
	callClone      = number{"clone", 56, 220}
	callClone3     = number{"clone3", 435, 435}
	callSocket     = number{"socket", 41, 198}
	callSocketpair = number{"socketpair", 53, 199}
	callSetsockopt = number{"setsockopt", 54, 208}
	callSendto     = number{"sendto", 44, 206}
	callSendmsg    = number{"sendmsg", 46, 211}
	callSendmmsg   = number{"sendmmsg", 307, 269}
	callFcntl      = number{"fcntl", 72, 25}
	callIoctl      = number{"ioctl", 16, 29}
	callPrlimit    = number{"prlimit64", 302, 261}
	callTruncate   = number{"truncate", 76, 45}
	callPrctl      = number{"prctl", 157, 167}
	callMemfd      = number{"memfd_create", 319, 279}
	callSecret     = number{"memfd_secret", 447, 447}
	callPriority   = number{"setpriority", 141, 140}
	callIOPriority = number{"ioprio_set", 251, 30}
)

// scheduling are the calls that change the scheduling of a thread, whose ID is the first argument. The kernel allows
// them for all threads of the same user, including the worker's if it has the same user.
var scheduling = []number{
	{"sched_setaffinity", 203, 122},
	{"sched_setscheduler", 144, 119},
	{"sched_setparam", 142, 118},
	{"sched_setattr", 314, 274},
}

// architecture is a supported architecture.
type architecture struct {
	audit uint32 // number by which the kernel identifies it to filters
	x32   bool   // has a second set of system calls with the same name
	of    func(number) int
}

var architectures = map[string]architecture{
	"amd64": {audit: 0xc000003e, x32: true, of: func(n number) int { return n.amd64 }},
	"arm64": {audit: 0xc00000b7, of: func(n number) int { return n.arm64 }},
}
