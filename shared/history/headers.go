package history

import "maps"

// Headers are texts by name that accompany a request or a command, such as a trace ID or a tenant. Events and tasks
// contain them; a replay never compares them.
type Headers map[string]string

// The limits of the headers of one request or command.
const (
	MaxHeaders     = 32
	MaxHeaderBytes = 8 << 10 // of all names and values together
)

// Copy returns a copy of the headers, which is never nil.
func (h Headers) Copy() Headers {
	all := make(Headers, len(h))
	maps.Copy(all, h)
	return all
}

// Size returns the size of the headers in JSON, approximately.
func (h Headers) Size() (n int) {
	for name, value := range h {
		n += len(name) + len(value) + len(`"":"",`)
	}
	return n
}
