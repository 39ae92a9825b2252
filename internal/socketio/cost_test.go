package socketio_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
)

// The tests measure the server's memory and processor time. The clients are in another process, so that they do not
// count: this binary, which reads from these variables where to connect and what to do.
const (
	crowdURL  = "SOCKETIO_CROWD_URL"
	crowdPlan = "SOCKETIO_CROWD_PLAN" // see crowd
)

type message struct {
	Items []string `json:"items"`
}

// runClients executes the plan "idle N", "connect N" or "call COUNT BYTES", prints "ready", and exits at the end of its
// input.
func runClients(url string) {
	plan := strings.Fields(os.Getenv(crowdPlan))
	count, err := strconv.Atoi(plan[1])
	check(err)
	ctx := context.Background()
	switch plan[0] {
	case "idle":
		for range count {
			_, err := socketio.Dial(ctx, url, "/", nil, socketio.DialOptions{})
			check(err)
		}
	case "connect":
		var all sync.WaitGroup
		slots := make(chan struct{}, 100)
		for range count {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				client, err := socketio.Dial(ctx, url, "/", nil, socketio.DialOptions{})
				check(err)
				check(rpc.SocketCaller{Socket: client}.Call(ctx, "echo", message{}, nil))
				client.Close(nil)
				check(client.Wait(ctx))
			})
		}
		all.Wait()
	case "call":
		size, err := strconv.Atoi(plan[2])
		check(err)
		in := message{Items: make([]string, max(1, size/64))}
		for i := range in.Items {
			in.Items[i] = strings.Repeat("x", 61)
		}
		client, err := socketio.Dial(ctx, url, "/", nil, socketio.DialOptions{})
		check(err)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range count / 8 {
					var out message
					check(rpc.SocketCaller{Socket: client}.Call(ctx, "echo", in, &out))
				}
			})
		}
		all.Wait()
	}
	fmt.Println("ready")
	buf := make([]byte, 1)
	_, _ = os.Stdin.Read(buf) // ends when the test closes it
}

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// callable serves the method "echo".
func callable(s *socketio.Server) {
	calls := rpc.Handlers{}
	rpc.Handle(calls, "echo", func(_ context.Context, in message) (message, error) { return in, nil })
	s.Of("/").OnSocket(func(s *socketio.Socket) { rpc.Serve(s, calls, rpc.Serving{}) })
}

// startClients starts a crowd and waits until it has executed its plan.
func startClients(t testing.TB, url, plan string) (leave func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crowdURL+"="+url, crowdPlan+"="+plan)
	lines, leave := start(t, cmd, ".")
	if got := await(t, lines, plan); got != "ready" {
		t.Fatalf("%s: %s", plan, got)
	}
	return leave
}

// inUse returns the memory of live objects and stacks in bytes.
func inUse() int64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func TestIdleConnectionIsCheap(t *testing.T) {
	const count = 1000
	server, url := serve(t, socketio.Options{}, callable)
	before := inUse()
	leave := startClients(t, url, fmt.Sprint("idle ", count))
	each := (inUse() - before) / count
	t.Logf("%d bytes for each of %d idle connections", each, server.Stats().Connections)
	if each > 40<<10 {
		t.Errorf("an idle connection holds %d bytes, want at most 40 KiB", each)
	}
	leave()
}

func TestFiveThousandConnects(t *testing.T) {
	server, url := serve(t, socketio.Options{}, callable)
	startClients(t, url, "connect 100")() // warm up
	before, goroutines := inUse(), runtime.NumGoroutine()
	startClients(t, url, "connect 5000")()
	for end := time.Now().Add(ceiling); server.Stats().Connections > 0 ||
		runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf(
				"%d connections and %d goroutines left, %d before", server.Stats().Connections, runtime.NumGoroutine(), goroutines,
			)
		}
	}
	if after := inUse(); after > before+8<<20 {
		t.Errorf("%d bytes in use, %d before", after, before)
	}
}

// BenchmarkServer reports what one call costs the server alone: go test -bench Server -benchtime 20000x
// ./internal/socketio
func BenchmarkServer(b *testing.B) {
	for _, bytes := range []int{200, 10_000} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			_, url := serve(b, socketio.Options{}, callable)
			count := max(8, b.N/8*8)
			before := processorTime(b)
			leave := startClients(b, url, fmt.Sprint("call ", count, " ", bytes))
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(count), "server-µs/call")
			leave()
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
