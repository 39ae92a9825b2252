package process

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestAStackStandsBelowItsLine(t *testing.T) {
	var b strings.Builder
	log := zerolog.New(Console(&b))
	log.Error().Str("run_id", "R1").Str("stack", "goroutine 7:\nshop.Pay()\n\t/shop/main.go:12 \x1b[2J\r\n").Msg("failed")
	log.Info().Dur("took", 1500*time.Millisecond).Msg("next")
	want := "<nil> ERR failed run_id=R1\n    goroutine 7:\n    shop.Pay()\n    \t/shop/main.go:12 [2J\n<nil> INF next took=1.5\n"
	if b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}
