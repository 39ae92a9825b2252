//go:build !race

package worker_test

import "github.com/sojourn-run/sojourn/sandbox"

var limits map[string]sandbox.Limits
