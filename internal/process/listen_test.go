package process

import (
	"context"
	"net"
	"strings"
	"testing"
)

func TestAPortInUseIsNamedWithItsFlag(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listen := func(addr string) string {
		_, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
		return ListenError("addr", addr, err).Error()
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if got, want := listen(l.Addr().String()), "port "+port+" is already in use; choose another with --addr"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := listen("127.0.0.1:999999"); !strings.HasPrefix(got, "cannot listen on 127.0.0.1:999999 (--addr): ") {
		t.Errorf("got %q", got)
	}
}
