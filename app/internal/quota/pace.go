package quota

import "time"

// A transaction with megabytes makes a commit long, and every other namespace's next step waits for that commit. So
// large payloads of clients are paced in each namespace while other namespaces are active; the only active namespace is
// never paced.
const (
	largePayload = 64 << 10
	paceBurst    = 8 << 20 // bytes of large payloads that are not paced
	paceRate     = 2 << 20 // bytes a second beyond these
	paceMost     = 5 * time.Second
	activeFor    = time.Second // time for which a namespace counts as active after its last commit
)

// active is a namespace with its last commit.
type active struct {
	namespace string
	at        time.Time
}

// worked records a commit. The last two namespaces suffice to determine whether a namespace other than a given one is
// active.
func (l *Ledger) worked(namespace string, now time.Time) {
	if l.recent[0].namespace != namespace {
		l.recent[1] = l.recent[0]
	}
	l.recent[0] = active{namespace, now}
}

func (l *Ledger) othersWork(namespace string, now time.Time) bool {
	for _, r := range l.recent {
		if r.namespace != "" && r.namespace != namespace && now.Sub(r.at) < activeFor {
			return true
		}
	}
	return false
}

// OthersActive reports whether this app committed work of a namespace other than the given one within the last second.
func (l *Ledger) OthersActive(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.othersWork(namespace, time.Now())
}

// Pace returns how long a payload must wait before its commit. If ok is false, the wait would be too long: reject the
// request; nothing is counted.
func (l *Ledger) Pace(namespace string, bytes int) (wait time.Duration, ok bool) {
	if bytes <= largePayload {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, s := time.Now(), l.space(namespace)
	if s.pacedAt.IsZero() {
		s.room = paceBurst
	}
	s.room = min(paceBurst, s.room+max(0, now.Sub(s.pacedAt).Seconds())*paceRate)
	s.pacedAt = now
	if !l.othersWork(namespace, now) {
		return 0, true
	}
	left := s.room - float64(bytes)
	wait = time.Duration(max(0, -left) / paceRate * float64(time.Second))
	if wait > paceMost {
		return 0, false
	}
	s.room = left
	return wait, true
}
