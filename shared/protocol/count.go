package protocol

import (
	"encoding/json"
	"strconv"
)

// Count is a number of at least 1 with a default, which is 0: absent or null. Explicit numbers below 1 become -1, which
// requests reject.
type Count int64

// UnmarshalJSON accepts a number or null.
func (c *Count) UnmarshalJSON(raw []byte) error {
	var value *int64
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	*c = 0
	if value != nil {
		if *c = Count(*value); *value < 1 {
			*c = -1
		}
	}
	return nil
}

// TTL is the time to live of a session in seconds. Absent: the default. null: the session lives until it is ended.
type TTL int64

// NoTTL is the value of null, wrongTTL the value of an invalid number, which requests reject.
const (
	NoTTL    TTL = -1
	wrongTTL TTL = -2
)

// UnmarshalJSON accepts a number or null.
func (t *TTL) UnmarshalJSON(raw []byte) error {
	var value *int64
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	switch {
	case value == nil:
		*t = NoTTL
	case *value < 1:
		*t = wrongTTL
	default:
		*t = TTL(*value)
	}
	return nil
}

// MarshalJSON encodes NoTTL as null.
func (t TTL) MarshalJSON() ([]byte, error) {
	if t == NoTTL {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}
