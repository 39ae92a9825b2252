package lockdown

import "fmt"

// instruction is an instruction of a filter program in the kernel's layout.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// These are the operations of filter programs.
const (
	opLoad    = 0x20 // loads a word of the call
	opAnd     = 0x54
	opEqual   = 0x15 // conditional jumps
	opAtLeast = 0x35
	opAnySet  = 0x45
	opReturn  = 0x06
)

// These are offsets in the input of a filter, and the filter's results.
const (
	atNumber = 0
	atArch   = 4
	atArgs   = 16 // eight bytes each, low half first on both architectures

	actionAllow = 0x7fff0000
	actionKill  = 0x80000000 // kills the whole process
	actionError = 0x00050000 // the call returns an error number
)

const (
	errPerm      = 1  // EPERM
	errAccess    = 13 // EACCES
	errNoSuch    = 38 // ENOSYS: libraries then use the older call
	firstX32Call = 0x40000000
)

// These are flags and commands that the filter checks.
const (
	// mount, cgroup, UTS, IPC, user, PID and network namespaces
	newNamespaces = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
	// TIOCSTI inserts input into the terminal
	ttyInput = 0x5412
	// TIOCLINUX can paste text on the console
	ttyConsole = 0x541c

	// F_SETLEASE delays processes that open a file for writing by up to lease-break-time (45 s), also if the executor
	// can only read the file F
	setLease = 1024
	// PR_SET_DUMPABLE can make a process unreadable for other processes of its user
	setDumpable = 4
	// PRIO_USER and IOPRIO_WHO_USER select all processes of a user
	prioUser, ioprioUser = 2, 3

	unixFamily, inetFamily, inet6Family, netlinkFamily = 1, 2, 10, 16
	streamType, datagramType, typeMask                 = 1, 2, 0xf
	tcpProtocol                                        = 6
	// MSG_FASTOPEN connects while it sends, which Landlock does not check
	fastOpen = 0x20000000
	// TCP_ULP changes the type of a socket, for example to SMC, whose connections Landlock does not check
	otherProtocol = 31
)

// filter returns the program that decides about system calls. Calls of a foreign architecture end the process, because
// their numbers have other meanings and every other check would test the wrong call.
func (r Rules) filter(arch string) ([]instruction, error) {
	a, ok := architectures[arch]
	if !ok {
		return nil, fmt.Errorf("no seccomp filter for architecture %s", arch)
	}
	p := program{of: a.of}
	p.load(atArch)
	p.unless(a.audit, actionKill)
	p.load(atNumber)
	if a.x32 {
		p.when(opAtLeast, firstX32Call, actionKill)
	}
	p.when(opAtLeast, newest+1, actionError|errNoSuch)
	for _, n := range refused {
		p.call(n, actionError|errPerm, func() {})
	}
	p.call(callClone3, actionError|errNoSuch, func() {}) // its flags are behind a pointer
	p.call(callClone, actionAllow, func() {
		p.arg(0)
		p.when(opAnySet, newNamespaces, actionError|errPerm)
	})
	p.call(callIoctl, actionAllow, func() {
		p.arg(1)
		p.when(opEqual, ttyInput, actionError|errPerm)
		p.when(opEqual, ttyConsole, actionError|errPerm)
	})
	p.call(callFcntl, actionAllow, func() {
		p.arg(1)
		p.when(opEqual, setLease, actionError|errPerm)
	})
	p.call(callPrlimit, actionAllow, func() { // the kernel allows it for all processes of the same user
		p.arg(0)
		p.unless(0, actionError|errPerm)
	})
	for _, n := range scheduling {
		p.call(n, actionAllow, func() {
			p.arg(0)
			p.unless(0, actionError|errPerm)
		})
	}
	for _, n := range []struct {
		call number
		user uint32 // value that selects all processes of a user
	}{{callPriority, prioUser}, {callIOPriority, ioprioUser}} {
		p.call(n.call, actionAllow, func() {
			p.arg(0)
			p.when(opEqual, n.user, actionError|errPerm)
			p.arg(1)
			p.unless(0, actionError|errPerm)
		})
	}
	p.call(callPrctl, actionAllow, func() { // a process that is hidden from its user is also hidden from the supervisor
		p.arg(0)
		p.when(opEqual, setDumpable, actionError|errPerm)
	})
	if r.NoMemoryFiles {
		p.call(callMemfd, actionError|errPerm, func() {})
		p.call(callSecret, actionError|errPerm, func() {})
	}
	if r.Landlock > 0 && !r.HoldsTruncate() {
		p.call(callTruncate, actionError|errAccess, func() {})
	}
	if len(r.Ports) > 0 {
		for _, send := range []struct {
			call  number
			flags uint32 // index of the argument
		}{{callSendto, 3}, {callSendmsg, 2}, {callSendmmsg, 3}} {
			p.call(send.call, actionAllow, func() {
				p.arg(send.flags)
				p.when(opAnySet, fastOpen, actionError|errAccess)
			})
		}
		p.call(callSetsockopt, actionAllow, func() {
			p.arg(1)
			p.block(tcpProtocol, actionAllow, func() {
				p.arg(2)
				p.when(opEqual, otherProtocol, actionError|errAccess)
			})
		})
	}
	p.call(callSocketpair, actionAllow, func() {
		p.arg(0)
		p.unless(unixFamily, actionError|errAccess)
	})
	p.call(callSocket, actionError|errAccess, func() { r.sockets(&p) })
	p.ret(actionAllow)
	return p.code, nil
}

// sockets allows sockets by family, type and protocol.
func (r Rules) sockets(p *program) {
	p.arg(0)
	p.when(opEqual, unixFamily, actionAllow)
	if !r.Inet {
		return
	}
	for _, family := range []uint32{inetFamily, inet6Family} {
		p.block(family, actionError|errAccess, func() {
			p.arg(1)
			p.code = append(p.code, instruction{code: opAnd, k: typeMask})
			// Allow only TCP as stream sockets, because Landlock does not check others, such as MPTCP.
			if len(r.Ports) > 0 {
				p.unless(streamType, actionError|errAccess)
				p.arg(2)
				p.when(opEqual, 0, actionAllow)
				p.when(opEqual, tcpProtocol, actionAllow)
				return
			}
			p.when(opEqual, streamType, actionAllow)
			p.when(opEqual, datagramType, actionAllow)
		})
	}
	p.block(netlinkFamily, actionError|errAccess, func() {
		// netlink lists the addresses of interfaces, which libraries read before they connect
		p.arg(2)
		p.when(opEqual, 0, actionAllow)
	})
}

// program is a filter program under construction.
type program struct {
	code []instruction
	of   func(number) int
}

func (p *program) load(at uint32) { p.code = append(p.code, instruction{code: opLoad, k: at}) }

// arg loads the low 32 bits of an argument. The kernel ignores the high bits of the arguments that the filter checks.
func (p *program) arg(i uint32) { p.load(atArgs + 8*i) }

func (p *program) ret(a uint32) { p.code = append(p.code, instruction{code: opReturn, k: a}) }

// when returns the action if the test is true.
func (p *program) when(test uint16, k, answer uint32) {
	p.code = append(p.code, instruction{code: test, k: k, jf: 1})
	p.ret(answer)
}

// unless returns answer if the loaded value is not k.
func (p *program) unless(k, answer uint32) {
	p.code = append(p.code, instruction{code: opEqual, k: k, jt: 1})
	p.ret(answer)
}

// block adds tests that run if the loaded value is k, and the result for calls that no test decided. The tests may load
// other values, since the program ends inside the block.
func (p *program) block(k, otherwise uint32, tests func()) {
	at := len(p.code)
	p.code = append(p.code, instruction{code: opEqual, k: k})
	tests()
	p.ret(otherwise)
	p.code[at].jf = uint8(len(p.code) - at - 1) //nolint:gosec // a block has few tests
}

// call adds the filter block of one system call.
func (p *program) call(n number, otherwise uint32, tests func()) {
	if nr := p.of(n); nr != absent {
		p.block(uint32(nr), otherwise, tests) //nolint:gosec // a small number
	}
}
