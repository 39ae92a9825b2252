//go:build !goexperiment.jsonv2

package payload

// secondEngine says that encoding/json runs on the engine of its second version, as in the released binary. It reads
// two oddities otherwise than the first, whose rules this package keeps: a tag with a quote in its name, and a name
// that two fields share but for case.
const secondEngine = false
