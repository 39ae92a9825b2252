//go:build !linux

package sandbox

import (
	"net"
	"os"
)

// control is the worker's end of the socket on which it and an executor exchange frames.
type control struct{ net.Conn }

// newControl takes ownership of the descriptor of a socket.
func newControl(fd int) (*control, error) {
	file := os.NewFile(uintptr(fd), "control")
	defer file.Close()
	conn, err := net.FileConn(file)
	return &control{conn}, err
}

// WriteBoth writes two texts, one after the other.
func (c *control) WriteBoth(head, body []byte) (int, error) {
	n, err := (&net.Buffers{head, body}).WriteTo(c.Conn)
	return int(n), err
}
