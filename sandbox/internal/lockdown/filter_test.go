package lockdown

import "testing"

// decide runs a filter the way the kernel does.
func decide(t *testing.T, code []instruction, arch uint32, nr int, args ...uint64) uint32 {
	t.Helper()
	word := func(at uint32) uint32 {
		switch {
		case at == atNumber:
			return uint32(nr)
		case at == atArch:
			return arch
		case at >= atArgs && int(at-atArgs)/8 < len(args):
			return uint32(args[(at-atArgs)/8] >> (8 * ((at - atArgs) % 8)))
		}
		return 0
	}
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		i := code[pc]
		jump := func(holds bool) {
			if holds {
				pc += int(i.jt)
			} else {
				pc += int(i.jf)
			}
		}
		switch i.code {
		case opLoad:
			acc = word(i.k)
		case opAnd:
			acc &= i.k
		case opEqual:
			jump(acc == i.k)
		case opAtLeast:
			jump(acc >= i.k)
		case opAnySet:
			jump(acc&i.k != 0)
		case opReturn:
			return i.k
		default:
			t.Fatalf("instruction %d: %#x", pc, i.code)
		}
	}
	t.Fatal("the program ran off its end")
	return 0
}

func TestFilter(t *testing.T) {
	const perm, access, missing = actionError | errPerm, actionError | errAccess, actionError | errNoSuch
	read, write := number{"read", 0, 63}, number{"write", 1, 64}
	for arch, a := range architectures {
		old, err := Rules{Landlock: 2, Filter: true}.filter(arch)
		if err != nil {
			t.Fatal(err)
		}
		shut, err := Rules{Landlock: 7, Filter: true, NoMemoryFiles: true}.filter(arch)
		if err != nil {
			t.Fatal(err)
		}
		open, err := Rules{Landlock: 7, Filter: true, Inet: true}.filter(arch)
		if err != nil {
			t.Fatal(err)
		}
		ports, err := Rules{Landlock: 7, Filter: true, Inet: true, Ports: []uint16{80}}.filter(arch)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			call        number
			args        []uint64
			ports, open uint32
		}{
			{callSocket, []uint64{inetFamily, 1}, actionAllow, actionAllow},
			{callSocket, []uint64{inet6Family, 1 | 0x80800, 6}, actionAllow, actionAllow},
			{callSocket, []uint64{inetFamily, 1, 262}, access, actionAllow}, // MPTCP
			{callSocket, []uint64{inetFamily, 1, 256}, access, actionAllow}, // SMC
			{callSocket, []uint64{inetFamily, 1, 132}, access, actionAllow}, // SCTP
			{callSocket, []uint64{inetFamily, 2}, access, actionAllow},      // UDP
			{callSocket, []uint64{inet6Family, 2, 17}, access, actionAllow},
			{callSocket, []uint64{inetFamily, 5}, access, access},
			{callSocket, []uint64{netlinkFamily, 3, 0}, actionAllow, actionAllow},
			{callSocket, []uint64{unixFamily, 2}, actionAllow, actionAllow},
			{callSendto, []uint64{3, 0, 0, 0}, actionAllow, actionAllow},
			{callSendto, []uint64{3, 0, 0, fastOpen}, access, actionAllow},
			{callSendto, []uint64{3, 0, 0, fastOpen | 0x4000}, access, actionAllow},
			{callSendmsg, []uint64{3, 0, fastOpen}, access, actionAllow},
			{callSendmsg, []uint64{3, 0, 0, fastOpen}, actionAllow, actionAllow},
			{callSendmmsg, []uint64{3, 0, 1, fastOpen}, access, actionAllow},
			{callSetsockopt, []uint64{3, tcpProtocol, otherProtocol}, access, actionAllow},
			{callSetsockopt, []uint64{3, tcpProtocol, 1}, actionAllow, actionAllow},
			{callSetsockopt, []uint64{3, 1, otherProtocol}, actionAllow, actionAllow},
		} {
			for name, want := range map[string]uint32{"ports": c.ports, "open": c.open} {
				code := map[string][]instruction{"ports": ports, "open": open}[name]
				if got := decide(t, code, a.audit, a.of(c.call), c.args...); got != want {
					t.Errorf("%s %s %s%v: %#x, want %#x", arch, name, c.call.name, c.args, got, want)
				}
			}
		}
		for name, code := range map[string][]instruction{"ports": ports, "old": old, "shut": shut, "open": open} {
			if len(code) > 4096 {
				t.Errorf("%s %s: %d instructions are too many for a kernel", arch, name, len(code))
			}
		}
		for _, n := range refused {
			if a.of(n) == absent {
				continue
			}
			if got := decide(t, open, a.audit, a.of(n)); got != perm {
				t.Errorf("%s %s: %#x", arch, n.name, got)
			}
		}
		for _, c := range []struct {
			call             number
			args             []uint64
			open, shut, old_ uint32
		}{
			{read, nil, actionAllow, actionAllow, actionAllow},
			{write, []uint64{1, 2, 3}, actionAllow, actionAllow, actionAllow},
			{callClone3, nil, missing, missing, missing},
			{callClone, []uint64{0x11}, actionAllow, actionAllow, actionAllow},          // fork
			{callClone, []uint64{0x3d0f00}, actionAllow, actionAllow, actionAllow},      // a thread
			{callClone, []uint64{0x10000011}, perm, perm, perm},                         // a user namespace
			{callClone, []uint64{0x20000011}, perm, perm, perm},                         // a namespace of processes
			{callClone, []uint64{0x40000011}, perm, perm, perm},                         // a network
			{callClone, []uint64{0x1_0000_0011}, actionAllow, actionAllow, actionAllow}, // the kernel uses the low half
			{callIoctl, []uint64{0, 0x5401}, actionAllow, actionAllow, actionAllow},
			{callIoctl, []uint64{0, ttyInput}, perm, perm, perm},
			{callIoctl, []uint64{0, 0xffffffff_00000000 | ttyInput}, perm, perm, perm},
			{callIoctl, []uint64{0, ttyConsole}, perm, perm, perm},
			{callFcntl, []uint64{3, 1024}, perm, perm, perm},
			{callFcntl, []uint64{3, 3}, actionAllow, actionAllow, actionAllow},
			{callPrlimit, []uint64{0}, actionAllow, actionAllow, actionAllow},
			{callPrlimit, []uint64{77}, perm, perm, perm},
			{callTruncate, nil, actionAllow, actionAllow, access},
			{callPrctl, []uint64{15}, actionAllow, actionAllow, actionAllow}, // a thread's name
			{callPrctl, []uint64{setDumpable, 0}, perm, perm, perm},
			{callMemfd, nil, actionAllow, perm, actionAllow},
			{callSecret, nil, actionAllow, perm, actionAllow},
			{number{"newest", newest, newest}, nil, actionAllow, actionAllow, actionAllow},
			{number{"newer", newest + 1, newest + 1}, nil, missing, missing, missing},
			{callPriority, []uint64{0, 0, 5}, actionAllow, actionAllow, actionAllow},
			{callPriority, []uint64{0, 77, 5}, perm, perm, perm},
			{callPriority, []uint64{prioUser, 0, 5}, perm, perm, perm},
			{callIOPriority, []uint64{1, 0, 5}, actionAllow, actionAllow, actionAllow},
			{callIOPriority, []uint64{ioprioUser, 0, 5}, perm, perm, perm},
			{scheduling[0], []uint64{0}, actionAllow, actionAllow, actionAllow},
			{scheduling[0], []uint64{77}, perm, perm, perm},
			{callSocketpair, []uint64{unixFamily}, actionAllow, actionAllow, actionAllow},
			{callSocketpair, []uint64{30}, access, access, access}, // TIPC
			{callSocket, []uint64{unixFamily, 5}, actionAllow, actionAllow, actionAllow},
			{callSocket, []uint64{inetFamily, 1}, actionAllow, access, access},
			// close-on-exec and non-blocking
			{callSocket, []uint64{inetFamily, 1 | 0x80800}, actionAllow, access, access},
			{callSocket, []uint64{inetFamily, 2}, actionAllow, access, access},
			{callSocket, []uint64{inet6Family, 2}, actionAllow, access, access},
			{callSocket, []uint64{inetFamily, 3}, access, access, access},  // raw
			{callSocket, []uint64{inet6Family, 3}, access, access, access}, //
			{callSocket, []uint64{netlinkFamily, 3, 0}, actionAllow, access, access},
			{callSocket, []uint64{netlinkFamily, 3, 12}, access, access, access}, // packet filters
			{callSocket, []uint64{17, 3}, access, access, access},                // packets
			{callSocket, []uint64{38, 5}, access, access, access},                // the kernel's ciphers
			{callSocket, []uint64{40, 1}, access, access, access},                // the host of a virtual machine
		} {
			for name, want := range map[string]uint32{"open": c.open, "shut": c.shut, "old": c.old_} {
				code := map[string][]instruction{"open": open, "shut": shut, "old": old}[name]
				if got := decide(t, code, a.audit, a.of(c.call), c.args...); got != want {
					t.Errorf("%s %s %s%v: %#x, want %#x", arch, name, c.call.name, c.args, got, want)
				}
			}
		}
		for _, foreign := range []uint32{0x40000003, 0x40000028, 0xc00000b7, 0xc000003e, 0xc00000f3, 0} {
			// i386 arm arm64 amd64 riscv64
			if foreign == a.audit {
				continue
			}
			for _, nr := range []int{0, 11, 59, 281} {
				if got := decide(t, open, foreign, nr); got != actionKill {
					t.Errorf("%s: call %d of architecture %#x: %#x", arch, nr, foreign, got)
				}
			}
		}
		if a.x32 {
			if got := decide(t, open, a.audit, firstX32Call+520); got != actionKill {
				t.Errorf("%s: x32: %#x", arch, got)
			}
		}
	}
	if _, err := (Rules{Filter: true}).filter("riscv64"); err == nil {
		t.Error("there is a filter for an architecture nobody wrote one for")
	}
}
