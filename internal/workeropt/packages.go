package workeropt

import (
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Packages converts the state of handler packages to the protocol.
func Packages(all []sandbox.PackagesInfo) (out []protocol.PackagesInfo) {
	for _, i := range all {
		out = append(out, protocol.PackagesInfo{
			Runtime: i.Runtime, Files: i.Files, State: string(i.State), Detail: i.Detail, Path: i.Path, Bytes: i.Bytes,
			Since: history.At(i.Since), RetryAt: history.At(i.RetryAt),
		})
	}
	return out
}
