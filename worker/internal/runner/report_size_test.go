package runner

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// If the size lacked the headers, requests with outcomes would exceed the limit of the app, which refuses them as a
// whole.
func TestTheSizeOfAnOutcomeIncludesHeaders(t *testing.T) {
	h := history.Headers{"tenant": strings.Repeat("x", history.MaxHeaderBytes-len("tenant"))}
	item := protocol.CompleteItem{Commands: []protocol.Command{{Headers: h}, {Headers: h}}}
	if got := sizeOf(&item); got < 2*history.MaxHeaderBytes {
		t.Errorf("the size is %d bytes", got)
	}
}
