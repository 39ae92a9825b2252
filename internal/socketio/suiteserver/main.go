// Command suiteserver is the server that the official test suites of Engine.IO 4 and Socket.IO 5 run against.
//
//	go run ./internal/socketio/suiteserver -addr localhost:3000
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

// greetAfter is the delay of the greeting of a new socket: the suites wait for one message at a time, and would read
// two messages that arrive together as one.
const greetAfter = 20 * time.Millisecond

// drainTime is the maximum time for open connections after a signal.
const drainTime = 5 * time.Second

func main() {
	addr, o, err := flags(os.Args[1:])
	if err != nil {
		os.Exit(2) // flags has printed the reason
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, addr, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suiteserver:", err)
		os.Exit(1)
	}
}

// flags parses the command line. The defaults are the values that the test suites expect.
func flags(args []string) (addr string, o socketio.Options, err error) {
	f := flag.NewFlagSet("suiteserver", flag.ContinueOnError)
	f.StringVar(&addr, "addr", "localhost:3000", "listen address")
	f.DurationVar(&o.PingInterval, "ping", 300*time.Millisecond, "time from a pong to the next ping")
	f.DurationVar(&o.PingTimeout, "ping-timeout", 200*time.Millisecond, "maximum time from a ping to its pong")
	f.DurationVar(&o.ConnectTimeout, "connect-timeout", time.Second, "maximum time from opening a connection to its first namespace")
	f.IntVar(&o.MaxPayload, "max-payload", 1_000_000, "maximum size of a frame or a polling body in bytes")
	return addr, o, f.Parse(args)
}

// run serves until ctx ends. Its first line of output has the address.
func run(ctx context.Context, addr string, o socketio.Options) error {
	engine, socket := servers(o)
	mux := http.NewServeMux()
	mux.Handle("/engine.io/", engine)
	mux.Handle("/socket.io/", socket)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	return errors.Join(engine.Close(closing), socket.Close(closing), server.Shutdown(closing))
}

// servers returns the two tested servers: plain Engine.IO, and Socket.IO.
func servers(o socketio.Options) (engine, socket *socketio.Server) {
	o.Failed = func(_ *socketio.Socket, err error) { fmt.Fprintln(os.Stderr, err) }
	engine, socket = socketio.NewEngine(o, echo), socketio.NewServer(o)
	for _, name := range []string{"/", "/custom"} {
		mirror(socket.Of(name))
	}
	return engine, socket
}

// echo sends every message back.
func echo(e *socketio.Engine, m socketio.Message) {
	_ = e.Send(m) // a session that ended needs no echo
}

// mirror greets every socket with its auth object and sends every message back, with its attachments.
func mirror(ns *socketio.Namespace) {
	ns.OnConnect(func(_ context.Context, r *socketio.ConnectRequest) (any, error) {
		if len(r.Auth) == 0 {
			return json.RawMessage("{}"), nil
		}
		return r.Auth, nil
	})
	ns.OnSocket(func(s *socketio.Socket) {
		s.OnInOrder("message", func(ctx context.Context, args []json.RawMessage) ([]any, error) {
			return nil, s.Emit("message-back", back(ctx, args)...)
		})
		s.OnInOrder("message-with-ack", func(ctx context.Context, args []json.RawMessage) ([]any, error) {
			return back(ctx, args), nil
		})
		select {
		case <-time.After(greetAfter):
			_ = s.Emit("auth", s.Principal()) // the socket may have ended
		case <-s.Done():
		}
	})
}

// back returns the arguments of an event.
func back(ctx context.Context, args []json.RawMessage) []any {
	if values, ok := socketio.Attached(ctx); ok {
		return values
	}
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a
	}
	return out
}
