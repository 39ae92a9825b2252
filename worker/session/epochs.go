package session

import "container/list"

// mostEpochs is the number of sessions whose highest epoch a worker remembers.
const mostEpochs = 100_000

// epochs is an LRU cache. For each session it has the highest epoch that the worker has seen, and whether the worker
// dropped the state of that epoch. The worker starts no work under a lower epoch, nor under an epoch whose state it
// dropped. It is not safe for concurrent use.
type epochs struct {
	most  int
	by    map[string]*list.Element
	order *list.List // elements are *seenEpoch, least recently used first
}

type seenEpoch struct {
	session string
	epoch   int64
	dropped bool
}

func newEpochs(most int) *epochs {
	return &epochs{most: most, by: map[string]*list.Element{}, order: list.New()}
}

// of returns the highest epoch of a session, or 0 if the cache does not contain it, and whether the state was dropped.
func (e *epochs) of(session string) (epoch int64, dropped bool) {
	if at := e.by[session]; at != nil {
		seen := at.Value.(*seenEpoch)
		return seen.epoch, seen.dropped
	}
	return 0, false
}

// saw records that the worker holds a session under an epoch.
func (e *epochs) saw(session string, epoch int64) {
	if at := e.by[session]; at != nil {
		*at.Value.(*seenEpoch) = seenEpoch{session: session, epoch: epoch}
		e.order.MoveToBack(at)
		return
	}
	e.by[session] = e.order.PushBack(&seenEpoch{session: session, epoch: epoch})
	if e.order.Len() > e.most {
		oldest := e.order.Remove(e.order.Front()).(*seenEpoch)
		delete(e.by, oldest.session)
	}
}

// dropped records that the worker has dropped the state of an epoch.
func (e *epochs) dropped(session string, epoch int64) {
	if at := e.by[session]; at != nil && at.Value.(*seenEpoch).epoch == epoch {
		at.Value.(*seenEpoch).dropped = true
	}
}
