package process

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ListenError explains why a process cannot listen on an address, and names the flag that sets it.
func ListenError(flag, addr string, err error) error {
	if _, port, bad := net.SplitHostPort(addr); bad == nil && errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %s is already in use; choose another with --%s", port, flag)
	}
	return fmt.Errorf("cannot listen on %s (--%s): %w", addr, flag, err)
}
