// Command v2 is a Socket.IO server with version 2 of github.com/zishang520/socket.io, for tests of Sojourn's client.
package main

import (
	"fmt"
	"os"

	"github.com/zishang520/socket.io/v2/socket"

	"github.com/sojourn-run/sojourn/interop/zishang/conversation"
)

func main() {
	io := socket.NewServer(nil, nil)
	for _, name := range conversation.Namespaces {
		err := io.Of(name, nil).On("connection", func(args ...any) {
			s := args[0].(*socket.Socket)
			conversation.Hold(conversation.Socket{
				On:   func(event string, handle func(...any)) { _ = s.On(event, handle) },
				Emit: s.Emit, Auth: s.Handshake().Auth,
			})
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	conversation.Serve(io.ServeHandler(nil))
}
