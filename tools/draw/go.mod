// Draws charts and flame graphs of benchmarks. A module besides the product's, so that no drawing library is linked into
// the binary.
module github.com/sojourn-run/sojourn/tools/draw

go 1.26.0

require (
	github.com/google/pprof v0.0.0-20261105003125-4bf881d7fb0b
	github.com/wcharczuk/go-chart/v2 v2.1.2
)

require (
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	golang.org/x/image v0.44.0 // indirect
)
