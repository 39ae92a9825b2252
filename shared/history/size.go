package history

// FrameSize is the maximum size of an event's JSON without its payload.
const FrameSize = 256

// Size estimates the bytes of the event's JSON, rather too many than too few. The payloads of common events are not
// encoded for it.
func (e Event) Size() int {
	n := FrameSize
	switch d := e.Data.(type) {
	case *WorkflowStarted:
		n += 1024 + len(d.Arguments) + len(d.Memo) + len(d.SearchAttributes) + d.Headers.Size() + d.Trace.Size()
	case *ActivityScheduled:
		n += 1024 + len(d.Arguments) + len(d.Session) + d.Headers.Size()
	case *ActivityCompleted:
		n += 1024 + len(d.Result)
	case *SignalReceived:
		n += 512 + len(d.Value) + d.Headers.Size() + d.Trace.Size()
	case *SignalApplied:
		n += 512 + len(d.Value)
	case *SideEffectRecorded:
		n += 256 + len(d.Result)
	case *TimerScheduled, *TimerFired:
		n += 512
	default:
		raw, err := EncodeData(d)
		if err != nil {
			return n
		}
		n += len(raw)
	}
	return n
}

// SizeOf returns the size of a list of events.
func SizeOf(events []Event) (n int) {
	for i := range events {
		n += events[i].Size()
	}
	return n
}
