// Package conversation has the handlers and the main loop of a test server that uses the zishang library. It is a
// separate module, because the tests run it with several versions of the library and a module can require only one.
package conversation

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Namespaces are the namespaces of the server's handlers.
var Namespaces = []string{"/", "/custom"}

// Socket has the common features of the library's versions, with values in the shapes of JavaScript.
type Socket struct {
	On   func(event string, handle func(args ...any))
	Emit func(event string, args ...any) error
	Auth any // auth object of the client
}

// Hold registers the handlers.
func Hold(s Socket) {
	on := func(name string, handle func(args []any, ack func(answer ...any))) {
		s.On(name, func(args ...any) {
			ack := func(...any) {}
			if n := len(args); n > 0 {
				if f, ok := args[n-1].(func([]any, error)); ok {
					args, ack = args[:n-1], func(answer ...any) { f(answer, nil) }
				}
			}
			handle(args, ack)
		})
	}
	on("echo", func(args []any, ack func(...any)) { ack(args...) })
	on("ask me", func(args []any, ack func(...any)) {
		_ = s.Emit("ask", args[0], func(answer []any, err error) {
			if err != nil {
				answer = []any{map[string]any{"error": err.Error()}}
			}
			ack(answer...)
		})
	})

	// "wait" ends when "go on" has come on the same socket.
	goOn := make(chan struct{})
	on("wait", func(_ []any, ack func(...any)) { <-goOn; ack("went on") })
	on("go on", func(_ []any, ack func(...any)) { close(goOn); ack() })

	// "notes" returns the first n notes in the order in which their handlers ran.
	notes := make(chan any, 1<<20)
	on("note", func(args []any, _ func(...any)) { notes <- args[0] })
	on("notes", func(args []any, ack func(...any)) {
		n, _ := args[0].(float64)
		go func() { // the notes may come after it
			seen := []any{}
			for len(seen) < int(n) {
				seen = append(seen, <-notes)
			}
			ack(seen)
		}()
	})

	on("panic", func([]any, func(...any)) { panic(errors.New("user handler failed")) })
	on("flood", func(args []any, ack func(...any)) {
		n, _ := args[0].(float64)
		for range int(n) {
			_ = s.Emit("blob", make([]byte, 1<<20))
		}
		ack()
	})

	// Registered last: a client that gets a response to it knows that the other handlers are registered.
	on("auth", func(_ []any, ack func(...any)) { ack(s.Auth) })
}

// Serve serves until standard input ends, and writes its address to standard output. It never returns.
func Serve(handler http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.Serve(l))
	os.Exit(1)
}
