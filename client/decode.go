package client

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// decode decodes a value into out. Without a value or out it does nothing.
func decode(chain codecs.Chain, p *payload.Payload, out any) error {
	if p == nil || out == nil || p.IsZero() {
		return nil
	}
	decoded, err := chain.DecodeValue(*p)
	if err != nil {
		return err
	}
	return payload.Decode(decoded, out)
}

// decoded returns the run with values that the codecs have decoded. A value that they cannot decode stays encoded.
func (c *Client) decoded(r RunInfo) RunInfo {
	if p := r.input; p != nil {
		if args, err := c.codecs.DecodeArgs(*p); err == nil && args != *p {
			if raw, err := payload.ToJSON(args); err == nil {
				r.input, r.Input = &args, raw
			}
		}
	}
	if p := r.output; p != nil {
		result, err := c.codecs.DecodeValue(*p)
		if r.undecoded = err; err == nil && result != *p {
			if raw, err := payload.ToJSON(result); err == nil {
				r.output, r.Output = &result, raw
			}
		}
	}
	if f := r.Failure; f != nil {
		if details, err := c.codecs.DecodeValue(f.details); err == nil && details != f.details {
			changed := *f
			changed.details = details
			r.Failure = &changed
		}
	}
	return r
}

// decodedEvent returns the event with payloads that the codecs have decoded; the event itself if they cannot.
func (c *Client) decodedEvent(e Event) Event {
	data, err := history.DecodeData(e.Type, e.Attributes)
	if err != nil {
		return e
	}
	events := []history.Event{{Seq: e.Sequence, Data: data}}
	decoded, err := c.codecs.DecodeEvents(events)
	if err != nil || decoded[0].Data == data {
		return e
	}
	if raw, err := history.EncodeData(decoded[0].Data); err == nil {
		e.Attributes = json.RawMessage(raw)
	}
	return e
}
