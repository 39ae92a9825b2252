package httpapi

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/suggest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Query strings are parsed by a few readers that keep the first error. An invalid number is rejected and not replaced
// by its default: a caller with page_size=1O0 should get an error.

// query reads the members of a query string. It stores the first error in err; after that all members are zero.
type query struct {
	values url.Values
	err    error
}

func (c *call) query() *query { return &query{values: c.Parameters()} }

func (q *query) text(name string) string {
	v := q.values.Get(name)
	if err := httpjson.CheckText(name, v); err != nil && q.err == nil {
		q.err = err
	}
	return v
}

// number returns a number of the query string, 0 if it is absent.
func (q *query) number(name string, least, most int) int {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if (err != nil || n < least || n > most) && q.err == nil {
		q.err = protocol.Invalid(name, "must be a number between %d and %d", least, most)
	}
	return n
}

// oneOf returns a text of the query string that must be one of a list, or empty if it is absent.
func (q *query) oneOf(name string, list ...string) string {
	v := q.text(name)
	if v != "" && !slices.Contains(list, v) && q.err == nil {
		words, last := strings.Join(list[:len(list)-1], ", "), list[len(list)-1]
		if words != "" {
			words += " or "
		}
		q.err = protocol.Invalid(name, "must be %s%s%s", words, last, suggest.Ending(suggest.Name(v, list)))
	}
	return v
}

// sequence returns the sequence number of an event, 0 if it is absent.
func (q *query) sequence(name string) int64 {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if (err != nil || n < 0) && q.err == nil {
		q.err = protocol.Invalid(name, "must be the sequence number of an event")
	}
	return n
}

// valuesOf returns the selection of values; the default is all of them.
func (q *query) valuesOf() protocol.Values {
	v := q.oneOf("values", string(protocol.ValuesFull), string(protocol.ValuesPreview), string(protocol.ValuesNone))
	return cmp.Or(protocol.Values(v), protocol.ValuesFull)
}

func (q *query) flag(name string) bool {
	switch v := q.values.Get(name); v {
	case "", "0", "false", "False":
	case "1", "true", "True":
		return true
	default:
		if q.err == nil {
			q.err = protocol.Invalid(name, "must be true or false")
		}
	}
	return false
}
