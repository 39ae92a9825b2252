package link

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sampleEvery is the interval of samples, sampleTime the timeout of one sample.
const (
	sampleEvery = 10 * time.Second
	sampleTime  = 5 * time.Second
)

// Machine samples CPU, memory and disk of the host on its own goroutine. A sample that hangs, as on a dead network file
// system, leaves the previous numbers in place and delays no other work.
type Machine struct {
	dir    string
	latest atomic.Pointer[protocol.MachineInformation]
	// sample takes one sample; tests replace it with one that hangs.
	sample func(ctx context.Context, dir string) protocol.MachineInformation

	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// WatchMachine starts sampling the host and the disk of dir. Close stops it.
func WatchMachine(dir string) *Machine { return watchMachine(dir, sample) }

func watchMachine(dir string, read func(context.Context, string) protocol.MachineInformation) *Machine {
	m := &Machine{dir: dir, sample: read}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	m.latest.Store(&protocol.MachineInformation{})
	m.wait.Go(func() { m.run(ctx) })
	return m
}

func (m *Machine) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		sampleCtx, cancel := context.WithTimeout(ctx, sampleTime)
		now := m.sample(sampleCtx, m.dir)
		cancel()
		m.latest.Store(&now)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Latest returns the last sample; zero before the first. It never blocks.
func (m *Machine) Latest() protocol.MachineInformation { return *m.latest.Load() }

// Close stops sampling. It does not wait longer than a second for a sample that hangs.
func (m *Machine) Close() {
	m.cancel()
	done := make(chan struct{})
	go func() { m.wait.Wait(); close(done) }()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// sample takes one sample. Unavailable values stay zero.
func sample(ctx context.Context, dir string) protocol.MachineInformation {
	var m protocol.MachineInformation
	m.Cores, _ = cpu.CountsWithContext(ctx, true)
	if p, err := cpu.PercentWithContext(ctx, 0, false); err == nil && len(p) > 0 { // since the last sample
		m.CPU = p[0]
	}
	if v, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		m.RAM, m.TotalRAM = v.UsedPercent, v.Total
	}
	if d, err := disk.UsageWithContext(ctx, dir); err == nil {
		m.Disk = &protocol.DiskInfo{Total: d.Total, Free: d.Free, Used: d.Used, Percentage: d.UsedPercent}
	}
	m.IP = address()
	return m
}

// address returns the first address of this machine that is reachable from others.
func address() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}
