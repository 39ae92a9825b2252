package protocol

import (
	"encoding/json"
	"strconv"
)

// Count is a number of at least 1 that has a default: 0, which is what is left out or null. One that is said and less
// stays wrong, as -1.
type Count int64

// UnmarshalJSON takes a number or null.
func (c *Count) UnmarshalJSON(raw []byte) error {
	var said *int64
	if err := json.Unmarshal(raw, &said); err != nil {
		return err
	}
	*c = 0
	if said != nil {
		if *c = Count(*said); *said < 1 {
			*c = -1
		}
	}
	return nil
}

// TTL is how many seconds a session lives: 0, what is left out, is the default; NoTTL, null, is as long as nobody ends
// it.
type TTL int64

// NoTTL is a session without its own end, wrongTTL what nobody may ask for.
const (
	NoTTL    TTL = -1
	wrongTTL TTL = -2
)

// UnmarshalJSON takes a number or null.
func (t *TTL) UnmarshalJSON(raw []byte) error {
	var said *int64
	if err := json.Unmarshal(raw, &said); err != nil {
		return err
	}
	switch {
	case said == nil:
		*t = NoTTL
	case *said < 1:
		*t = wrongTTL
	default:
		*t = TTL(*said)
	}
	return nil
}

// MarshalJSON is how UnmarshalJSON takes it.
func (t TTL) MarshalJSON() ([]byte, error) {
	if t == NoTTL {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}
