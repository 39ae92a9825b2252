package sqlite_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
)

func BenchmarkCompletions(b *testing.B) { storetest.Completions(b, suite(b)) }
func BenchmarkBurn(b *testing.B)        { storetest.Burn(b, suite(b)) }
func BenchmarkFlows(b *testing.B)       { storetest.Flows(b, suite(b)) }
func BenchmarkWide(b *testing.B)        { storetest.Wide(b, suite(b)) }
