package sandbox

import "maps"

// Stats counts the executors of a pool since its start.
type Stats struct {
	Starts map[string]int64            // by runtime
	Calls  map[string]int64            // served, by runtime
	Ends   map[string]map[string]int64 // by runtime and cause; closed: no longer needed
}

// Stats returns the counts of executors and calls since the pool was created.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Starts: maps.Clone(p.stats.Starts), Calls: maps.Clone(p.stats.Calls), Ends: map[string]map[string]int64{}}
	for runtime, ends := range p.stats.Ends {
		s.Ends[runtime] = maps.Clone(ends)
	}
	for ex := range p.all {
		s.Calls[ex.lang.name] += int64(ex.info().Calls)
	}
	return s
}

func newStats() Stats {
	return Stats{Starts: map[string]int64{}, Calls: map[string]int64{}, Ends: map[string]map[string]int64{}}
}

// countEnd counts an executor that has ended. The caller must hold the pool's mutex.
func (s *Stats) countEnd(runtime string, cause Cause, calls int) {
	s.Calls[runtime] += int64(calls)
	if s.Ends[runtime] == nil {
		s.Ends[runtime] = map[string]int64{}
	}
	s.Ends[runtime][string(cause)]++
}
