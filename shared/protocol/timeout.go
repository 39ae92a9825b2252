package protocol

import "encoding/json"

// Timeout is a limit in whole seconds, at least 1; absent: no limit.
type Timeout int64

// UnmarshalJSON reads an integer. null means absent, which is 0. An explicit 0 becomes a negative number, which every
// check rejects: a caller may mean "at once" by 0, but the app would read it as "no timeout".
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
