//go:build !goexperiment.jsonv2

package payload

// secondEngine reports that encoding/json runs on the engine of its second version, as in the released binary. That
// engine treats two cases differently from the first, whose rules this package follows: a tag with a quote in its name,
// and a name that two fields share except for case.
const secondEngine = false
