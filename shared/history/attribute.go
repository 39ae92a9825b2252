package history

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// SearchAttributesUpserted records an upsert_search_attributes command. null in Attributes removes an attribute; Merged
// has all attributes after the command.
type SearchAttributesUpserted struct {
	Sequence   int64           `json:"sequence"`
	Attributes json.RawMessage `json:"attributes"`
	Types      json.RawMessage `json:"attribute_types,omitempty"`
	Merged     json.RawMessage `json:"merged"`
}

// MemoUpserted records an upsert_memo command; both members are maps, as {codec, blob}. null in entries removes an
// entry.
type MemoUpserted struct {
	Sequence int64           `json:"sequence"`
	Entries  payload.Payload `json:"entries"`
	Merged   payload.Payload `json:"merged"`
}
