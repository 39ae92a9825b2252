package protocol

import "encoding/json"

// Timeout is a limit in whole seconds, at least 1; none when absent.
type Timeout int64

// UnmarshalJSON reads a whole number; null is as good as absent, which is 0. A 0 that is said is read as less than
// nothing, which every check refuses: it means "at once" to whoever wrote it and "never" to whoever keeps it.
func (t *Timeout) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	if *t = Timeout(n); n == 0 {
		*t = -1
	}
	return nil
}
