package sandboxtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attack runs the whole list and returns the error of each attack; empty if it succeeded.
func attack(a Aim) map[string]string {
	outcomes := map[string]string{}
	for _, row := range Attacks {
		try := tries[row.Name]
		if try == nil {
			outcomes[row.Name] = "no outcome was written"
			continue
		}
		outcomes[row.Name] = ""
		if err := try(a); err != nil {
			outcomes[row.Name] = err.Error()
		}
	}
	return outcomes
}

var tries = map[string]func(Aim) error{
	"own folder": func(a Aim) error {
		in := func(name string) string { return filepath.Join(a.Scratch, name) }
		return errors.Join(
			os.MkdirAll(in("d"), 0o700), create(in("d/f")), os.Rename(in("d/f"), in("f")), os.Chmod(in("f"), 0o755),
			os.Remove(in("f")),
		)
	},
	"runtime and code": func(a Aim) error {
		return errors.Join(reads(a.Code), reads("/usr/bin/env"), reads("/etc/hosts"))
	},
	"child process": func(Aim) error {
		return exec.Command("sh", "-c", "exec 2>/dev/null; ls / >/dev/null; exit 0").Run()
	},
	"what the machine is": func(Aim) error {
		return errors.Join(reads("/proc/cpuinfo"), reads("/proc/meminfo"), reads("/proc/stat"))
	},

	"secret in the environment": func(Aim) error {
		if strings.Contains(strings.Join(os.Environ(), " "), "SOJOURN_TOKEN") {
			return nil
		}
		return errors.New("none")
	},
	"environment of the worker":        func(a Aim) error { return reads(proc(a.Worker, "environ")) },
	"environment of the first process": func(Aim) error { return reads(proc(1, "environ")) },
	"environment of another executor":  func(a Aim) error { return reads(proc(a.Other, "environ")) },
	"command lines":                    func(a Aim) error { return reads(proc(a.Worker, "cmdline")) },
	"memory of the worker":             func(a Aim) error { return opens(proc(a.Worker, "mem"), unix.O_RDWR) },
	"memory of the worker by process_vm_readv": func(a Aim) error {
		var word [8]byte
		_, err := unix.ProcessVMReadv(
			a.Worker, []unix.Iovec{{Base: &word[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0,
		)
		return err
	},
	"ptrace":                     func(a Aim) error { return call(unix.SYS_PTRACE, 0x4206, uintptr(a.Worker)) }, // seize
	"ptrace of another executor": func(a Aim) error { return call(unix.SYS_PTRACE, 0x4206, uintptr(a.Other)) },
	"descriptor of the worker": func(a Aim) error {
		fd, err := unix.PidfdOpen(a.Worker, 0)
		if err != nil {
			return err
		}
		return call(unix.SYS_PIDFD_GETFD, uintptr(fd))
	},
	"limits of the worker": func(a Aim) error {
		return call(unix.SYS_PRLIMIT64, uintptr(a.Worker), unix.RLIMIT_NOFILE)
	},
	"signal to the worker":                  func(a Aim) error { return unix.Kill(a.Worker, 0) },
	"signal to another executor":            func(a Aim) error { return unix.Kill(a.Other, 0) },
	"secret file":                           func(a Aim) error { return reads(a.Secret) },
	"secret file through the worker's root": func(a Aim) error { return reads(proc(a.Worker, "root"+a.Secret)) },
	"another executor's file":               func(a Aim) error { return reads(a.Foreign) },
	"change another executor's file":        func(a Aim) error { return opens(a.Foreign, unix.O_WRONLY) },
	"remove another executor's file":        func(a Aim) error { return os.Remove(a.Foreign) },
	"take another executor's file": func(a Aim) error {
		return os.Rename(a.Foreign, filepath.Join(a.Scratch, "taken"))
	},
	"names in another executor's folder": func(a Aim) error { _, err := os.ReadDir(filepath.Dir(a.Foreign)); return err },
	"write in another executor's folder": func(a Aim) error { return leaves(filepath.Dir(a.Foreign)) },
	"symbolic link to another executor's file": func(a Aim) error {
		link := filepath.Join(a.Scratch, "other")
		return first(os.Symlink(a.Foreign, link), func() error { return reads(link) })
	},
	"another executor's file through its folder": func(a Aim) error {
		return reads(proc(a.Other, "cwd/"+filepath.Base(a.Foreign)))
	},
	"names in the folder of all executors": func(a Aim) error {
		_, err := os.ReadDir(filepath.Dir(a.Scratch))
		return err
	},
	"memory of another executor": func(a Aim) error { return opens(proc(a.Other, "mem"), unix.O_RDWR) },
	"descriptor of another executor": func(a Aim) error {
		fd, err := unix.PidfdOpen(a.Other, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return call(unix.SYS_PIDFD_GETFD, uintptr(fd), 3)
	},
	"limits of another executor": func(a Aim) error {
		return call(unix.SYS_PRLIMIT64, uintptr(a.Other), unix.RLIMIT_NOFILE)
	},
	"priority of another executor": func(a Aim) error { return unix.Setpriority(unix.PRIO_PROCESS, a.Other, 1) },
	"write in /etc":                func(Aim) error { return leaves("/etc") },
	"write in /usr":                func(Aim) error { return leaves("/usr/local/lib") },
	"write in /var/tmp":            func(Aim) error { return leaves("/var/tmp") },
	"write in /tmp":                func(Aim) error { return leaves("/tmp") },
	"write in /dev/shm":            func(Aim) error { return leaves("/dev/shm") },
	"write in the worker's folder": func(a Aim) error { return leaves(a.Folder) },
	"change code":                  func(a Aim) error { return opens(a.Code, unix.O_WRONLY) },
	"lease of code": func(a Aim) error { // delays processes that open the file for writing
		fd, err := unix.Open(a.Code, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		return err
	},
	"hard link to the secret": func(a Aim) error {
		link := filepath.Join(a.Scratch, "hard")
		return first(os.Link(a.Secret, link), func() error { return reads(link) })
	},
	"symbolic link to the secret": func(a Aim) error {
		link := filepath.Join(a.Scratch, "soft")
		return first(os.Symlink(a.Secret, link), func() error { return reads(link) })
	},
	"open descriptors": func(Aim) error {
		for fd := 4; fd < 256; fd++ {
			// Descriptors of this process are marked close-on-exec.
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				return nil
			}
		}
		return errors.New("none")
	},
	"core dumps": func(Aim) error {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil || l.Max == 0 {
			return errors.New("none")
		}
		return nil
	},
	"capabilities": func(Aim) error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		kept, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err := unix.Capget(&header, &sets[0]); err == nil && sets[0].Permitted == 0 && sets[1].Permitted == 0 &&
			kept == 1 {
			return errors.New("none")
		}
		return nil
	},
	"mount":                            func(a Aim) error { return unix.Mount("none", a.Scratch, "tmpfs", 0, "") },
	"bpf":                              func(Aim) error { return reached(unix.SYS_BPF, 0xffff) },
	"perf":                             func(Aim) error { return reached(unix.SYS_PERF_EVENT_OPEN) },
	"io_uring":                         func(Aim) error { return reached(unix.SYS_IO_URING_SETUP, 0xffff) },
	"keyctl":                           func(Aim) error { return reached(unix.SYS_KEYCTL, 0xffff) },
	"userfaultfd":                      func(Aim) error { return reached(unix.SYS_USERFAULTFD, 0xffff) },
	"memory of System V":               func(Aim) error { return leavesMemory() },
	"semaphores of System V":           func(Aim) error { return reached(unix.SYS_SEMGET, 0, 0xffffffff) },
	"messages of System V":             func(Aim) error { return reached(unix.SYS_MSGGET, 0x736f6a) },
	"another's semaphores of System V": func(Aim) error { return reached(unix.SYS_SEMOP, 0x7fffffff, 0, 0) },
	"another's messages of System V":   func(Aim) error { return reached(unix.SYS_MSGRCV, 0x7fffffff, 0, 0, 0, 0) },
	"what semaphores there are":        func(Aim) error { return reached(unix.SYS_SEMCTL, 0, 0, 20, 0) }, // SEM_STAT_ANY
	"what is mounted":                  func(Aim) error { return reached(unix.SYS_STATMOUNT) },
	"attributes of code":               func(Aim) error { return reached(469, 0xffff) }, // file_setattr of Linux 6.17
	"another protocol over TCP": func(Aim) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return refused(unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_ULP, "smc"))
	},
	"pages of the worker": func(a Aim) error { // addresses of existing pages
		pages, status := uintptr(0x400000), int32(0)
		return call(
			unix.SYS_MOVE_PAGES, uintptr(a.Worker), 1, uintptr(unsafe.Pointer(&pages)), 0,
			uintptr(unsafe.Pointer(&status)), 0,
		)
	},
	"message queue":                    func(Aim) error { return reached(unix.SYS_MQ_OPEN, 0, 0xffff) },
	"asynchronous IO of the machine":   func(Aim) error { return reached(unix.SYS_IO_SETUP, 0) },
	"priority of the worker":           func(a Aim) error { return unix.Setpriority(unix.PRIO_PROCESS, a.Worker, 1) },
	"priority of its user's processes": func(Aim) error { return unix.Setpriority(unix.PRIO_USER, 0, 1) },
	"processors of the worker": func(a Aim) error {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(a.Worker, &set); err != nil {
			return err
		}
		return unix.SchedSetaffinity(a.Worker, &set)
	},
	"IO priority of the worker": func(a Aim) error {
		return call(unix.SYS_IOPRIO_SET, 1, uintptr(a.Worker), 2<<13|7) // best effort, lowest priority
	},
	"hide from the supervisor": func(Aim) error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) },
	"names in the worker's folder by inotify": func(a Aim) error {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.InotifyAddWatch(fd, a.Folder, unix.IN_CREATE)
		return err
	},
	"open by handle": func(Aim) error { return reached(unix.SYS_OPEN_BY_HANDLE_AT, 0xffff) },
	"user namespace": func(Aim) error { return reached(unix.SYS_UNSHARE, unix.CLONE_NEWUSER) },
	"user namespace by clone": func(Aim) error {
		c := exec.Command("true")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		return c.Run()
	},
	"core pattern":    func(Aim) error { return opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY) },
	"sysrq":           func(Aim) error { return opens("/proc/sysrq-trigger", unix.O_WRONLY) },
	"kernel settings": func(Aim) error { return opens("/proc/sys/vm/overcommit_memory", unix.O_WRONLY) },
	"devices": func(Aim) error {
		var err error
		for _, name := range []string{"kvm", "vda", "sda", "mem", "fuse", "net/tun", "kmsg", "ptmx"} {
			if err = opens("/dev/"+name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY); err == nil {
				return nil
			}
		}
		return err
	},
	"another cgroup": func(Aim) error {
		var err error
		for _, file := range []string{"cgroup.procs", "unified/cgroup.procs", "memory/cgroup.procs", "cpu/cgroup.procs"} {
			if err = opens("/sys/fs/cgroup/"+file, unix.O_WRONLY); err == nil {
				return nil
			}
		}
		return err
	},
	"out of memory score": func(Aim) error { return opens("/proc/self/oom_score_adj", unix.O_WRONLY) },
	"hard limit": func(Aim) error {
		return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
	},
	"abstract socket":                 func(a Aim) error { return dials("unix", a.Abstract) },
	"named socket":                    func(a Aim) error { return dials("unix", a.Named) },
	"TCP to a service of the machine": func(a Aim) error { return refused(dials("tcp", a.TCP)) },
	"TCP to the metadata address":     func(Aim) error { return refused(dials("tcp", "169.254.169.254:80")) },
	"UDP":                             func(Aim) error { return refused(sockets(unix.AF_INET, unix.SOCK_DGRAM, 0)) },
	"raw socket":                      func(Aim) error { return sockets(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"packet socket":                   func(Aim) error { return sockets(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"vsock":                           func(Aim) error { return sockets(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	"listen": func(Aim) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			_ = l.Close()
		}
		return err
	},
	"terminal input": func(Aim) error { return reached(unix.SYS_IOCTL, 0, unix.TIOCSTI) },
	"another user":   func(Aim) error { return call(unix.SYS_SETUID, 12345) },
	"clock":          func(Aim) error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: -1}) },
	"reboot":         func(Aim) error { return reached(unix.SYS_REBOOT) },
	"kernel module":  func(Aim) error { return reached(unix.SYS_FINIT_MODULE, 0xffff) },
	"kexec":          func(Aim) error { return reached(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff) },
}

func proc(pid int, file string) string { return fmt.Sprintf("/proc/%d/%s", pid, file) }

func reads(path string) error { _, err := os.ReadFile(path); return err }

func create(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }

// opens opens a file and does not change it.
func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// leaves creates a file where the next user of the folder would find it, and removes it again.
func leaves(dir string) error {
	path := filepath.Join(dir, fmt.Sprintf("sojourn-test-%d", os.Getpid()))
	defer os.Remove(path)
	return create(path)
}

// leavesMemory creates a segment that outlives this process, and removes it again.
func leavesMemory() error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err == nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	return err
}

// first calls next only if there was no error.
func first(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// call makes a system call.
func call(nr uintptr, args ...uintptr) error {
	args = append(args, make([]uintptr, 6)...)
	if _, _, errno := unix.RawSyscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
		return errno
	}
	return nil
}

// reached returns an error if a call is refused before the kernel checks its invalid arguments.
func reached(nr uintptr, args ...uintptr) error {
	err := call(nr, args...)
	if errors.Is(err, unix.ENOSYS) {
		return err
	}
	return refused(err)
}

// refused returns err if the kernel denied the operation. Errors such as a refused connection or an unreachable address
// do not show that connecting is denied.
func refused(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return err
	}
	return nil
}

func sockets(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func dials(network, address string) error {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err
}
