package wall

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNumbersAreTheKernels(t *testing.T) {
	want := map[string]int{
		"sendto":            unix.SYS_SENDTO,
		"sendmsg":           unix.SYS_SENDMSG,
		"sendmmsg":          unix.SYS_SENDMMSG,
		"mount":             unix.SYS_MOUNT,
		"umount2":           unix.SYS_UMOUNT2,
		"move_mount":        unix.SYS_MOVE_MOUNT,
		"open_tree":         unix.SYS_OPEN_TREE,
		"open_tree_attr":    unix.SYS_OPEN_TREE_ATTR,
		"fsopen":            unix.SYS_FSOPEN,
		"fsconfig":          unix.SYS_FSCONFIG,
		"fsmount":           unix.SYS_FSMOUNT,
		"fspick":            unix.SYS_FSPICK,
		"mount_setattr":     unix.SYS_MOUNT_SETATTR,
		"pivot_root":        unix.SYS_PIVOT_ROOT,
		"chroot":            unix.SYS_CHROOT,
		"unshare":           unix.SYS_UNSHARE,
		"setns":             unix.SYS_SETNS,
		"ptrace":            unix.SYS_PTRACE,
		"process_vm_readv":  unix.SYS_PROCESS_VM_READV,
		"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
		"pidfd_getfd":       unix.SYS_PIDFD_GETFD,
		"kcmp":              unix.SYS_KCMP,
		"process_madvise":   unix.SYS_PROCESS_MADVISE,
		"bpf":               unix.SYS_BPF,
		"perf_event_open":   unix.SYS_PERF_EVENT_OPEN,
		"userfaultfd":       unix.SYS_USERFAULTFD,
		"fanotify_init":     unix.SYS_FANOTIFY_INIT,
		"io_uring_setup":    unix.SYS_IO_URING_SETUP,
		"io_uring_enter":    unix.SYS_IO_URING_ENTER,
		"io_uring_register": unix.SYS_IO_URING_REGISTER,
		"keyctl":            unix.SYS_KEYCTL,
		"add_key":           unix.SYS_ADD_KEY,
		"request_key":       unix.SYS_REQUEST_KEY,
		"modify_ldt":        unix.SYS_MODIFY_LDT,
		"uselib":            unix.SYS_USELIB,
		"lookup_dcookie":    unix.SYS_LOOKUP_DCOOKIE,
		"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		"kexec_load":        unix.SYS_KEXEC_LOAD,
		"kexec_file_load":   unix.SYS_KEXEC_FILE_LOAD,
		"reboot":            unix.SYS_REBOOT,
		"create_module":     unix.SYS_CREATE_MODULE,
		"init_module":       unix.SYS_INIT_MODULE,
		"finit_module":      unix.SYS_FINIT_MODULE,
		"delete_module":     unix.SYS_DELETE_MODULE,
		"swapon":            unix.SYS_SWAPON,
		"swapoff":           unix.SYS_SWAPOFF,
		"acct":              unix.SYS_ACCT,
		"quotactl":          unix.SYS_QUOTACTL,
		"quotactl_fd":       unix.SYS_QUOTACTL_FD,
		"settimeofday":      unix.SYS_SETTIMEOFDAY,
		"clock_settime":     unix.SYS_CLOCK_SETTIME,
		"clock_adjtime":     unix.SYS_CLOCK_ADJTIME,
		"adjtimex":          unix.SYS_ADJTIMEX,
		"sethostname":       unix.SYS_SETHOSTNAME,
		"setdomainname":     unix.SYS_SETDOMAINNAME,
		"syslog":            unix.SYS_SYSLOG,
		"vhangup":           unix.SYS_VHANGUP,
		"iopl":              unix.SYS_IOPL,
		"ioperm":            unix.SYS_IOPERM,
		"listen":            unix.SYS_LISTEN,
		"clone":             unix.SYS_CLONE,
		"clone3":            unix.SYS_CLONE3,
		"socket":            unix.SYS_SOCKET,
		"socketpair":        unix.SYS_SOCKETPAIR,
		"ioctl":             unix.SYS_IOCTL,
		"prlimit64":         unix.SYS_PRLIMIT64,
		"truncate":          unix.SYS_TRUNCATE,
	}
	all := append(
		[]number{
			callClone, callClone3, callSocket, callSocketpair, callIoctl, callPrlimit, callTruncate, callSendto, callSendmsg,
			callSendmmsg,
		}, refused...,
	)
	for _, n := range all {
		nr, there := want[n.name]
		if !there {
			nr = absent
		}
		if n.amd64 != nr {
			t.Errorf("%s is %d, not %d", n.name, nr, n.amd64)
		}
	}
}
