package rpc

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// envelopeIn is a received envelope.
type envelopeIn struct {
	Method     string          `json:"method"`
	Payload    json.RawMessage `json:"payload"`
	DeadlineMS int64           `json:"deadlineMs"`
}

// read decodes the envelope. Errors inside the payload are found when the payload is decoded.
func (e *envelopeIn) read(arg []byte) error {
	if rawjson.Read(arg, rawjson.Field{Name: "method", Into: &e.Method}, rawjson.Field{Name: "payload", Into: &e.Payload},
		rawjson.Field{Name: "deadlineMs", Into: &e.DeadlineMS}) {
		return nil
	}
	*e = envelopeIn{}
	return json.Unmarshal(arg, e)
}
