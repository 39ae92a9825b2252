package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// otherApp is the variable that makes a test process of this package the other app: the URL of its database.
const otherApp = "SOJOURN_TEST_OTHER_APP"

// TestOtherApp is the body of the process that TestAppThatStandsStill stops, not a test. It commits as an app does
// until its input ends, and prints the number of rounds.
func TestOtherApp(t *testing.T) {
	at := os.Getenv(otherApp)
	if at == "" {
		t.Skip("it is run by another test")
	}
	at, size, _ := strings.Cut(at, " ")
	payload, err := strconv.Atoi(size)
	if err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), at, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}()
	x := &storetest.Traffic{S: s, App: fmt.Sprint("a", os.Getpid()), Payload: payload}
	for _, op := range append(x.Ops(), storetest.Op{Name: "apart", Do: x.Apart}) {
		go func() {
			for {
				if err := op.Do(context.Background()); err != nil {
					fmt.Printf("failed %s: %v\n", op.Name, err)
				} else {
					fmt.Printf("did %s\n", op.Name)
				}
				time.Sleep(20 * time.Millisecond) // pause, because the machine is shared with the other app
			}
		}()
	}
	select {}
}

// halt describes how an app is paused: at which statement of a transaction, after how much of the statement was sent,
// and whether its process is stopped or its network drops all packets.
type halt struct {
	at    string
	half  bool
	frost bool
}

func (h halt) String() string {
	how := map[bool]string{true: "its process stopped", false: "its network gone"}[h.frost]
	what := map[bool]string{true: "half of", false: "before"}[h.half]
	return how + " at " + what + " " + h.at
}

// statements are the places where the other app is stopped: with names locked, with rows loaded and locked, in the
// writes, in a claim, before COMMIT.
var statements = []string{
	"FROM runs AS t", "INSERT INTO events", "INSERT INTO runs", "INSERT INTO sessions", "FROM fairness AS t",
	"INSERT INTO queues",
	"INSERT INTO workers", "FOR UPDATE OF t SKIP LOCKED", "COMMIT", "FROM sessions AS t",
}

func TestFrozenAppDoesNotBlockOthers(t *testing.T) {
	rounds, long := 3, time.Duration(0)
	// limits for a busy machine: the commits need only finish while the other app is paused
	bound, apart := 30*time.Second, 15*time.Second
	if n := os.Getenv("SOJOURN_TEST_FREEZES"); n != "" {
		var err error
		if rounds, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		bound, apart, long = 3*time.Second, time.Second, time.Minute
	}
	for _, payload := range []int{100, 1 << 20} {
		for _, frost := range []bool{true, false} {
			t.Run(fmt.Sprintf("payload %d, stopped %v", payload, frost), func(t *testing.T) {
				standStill(t, payload, rounds, func(i int) halt {
					return halt{statements[i%len(statements)], (i+i/len(statements))%2 == 0, frost}
				}, bound, apart, long)
			})
		}
	}
}

// standStill pauses another app repeatedly, measures each time what this app still commits, and resumes the other app.
// The last pause is long.
func standStill(t *testing.T, payload, rounds int, how func(int) halt, bound, apart, long time.Duration) {
	at := database(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	gate := storetest.NewGate(t, u.Host)
	u.Host = gate.Addr()
	s, err := postgres.Open(t.Context(), at, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	x := &storetest.Traffic{S: s, App: "b", Payload: 100}
	if err := x.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := startOther(t, u.String(), payload)
	var worst, worstApart time.Duration
	for i := range rounds {
		other.progress(t) // the other app is working
		h := how(i)
		select {
		case <-gate.Shut(h.at, h.half):
		case <-time.After(20 * time.Second):
			t.Logf("the other app never came to %s", h.at)
			gate.Open()
			continue
		}
		if h.frost {
			other.signal(t, syscall.SIGSTOP)
		}
		stand := 3 * time.Second
		if i == rounds-1 {
			stand = max(stand, long)
		}
		took, took1 := measure(t, x, stand)
		if took > bound || took1 > apart {
			t.Errorf("round %d, %s: answers took up to %s, and %s where nothing is shared", i, h, took, took1)
		}
		t.Logf("%s: %s, %s", h, took.Round(time.Millisecond), took1.Round(time.Millisecond))
		worst, worstApart = max(worst, took), max(worstApart, took1)
		if h.frost {
			other.signal(t, syscall.SIGCONT)
		}
		gate.Open()
	}
	other.progress(t)
	other.end()
	t.Logf(
		"worst of %d: %s, where nothing is shared %s", rounds, worst.Round(time.Millisecond),
		worstApart.Round(time.Millisecond),
	)
	w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
	found := map[string]int{}
	for _, run := range storetest.SharedRuns {
		for _, v := range w.Run(run).Signals.All() {
			found[v.Name]++
		}
	}
	for name := range x.Taken() {
		if found[name] != 1 {
			t.Errorf("signal %s was acknowledged and is there %d times", name, found[name])
		}
	}
	for name, n := range found {
		if n > 1 {
			t.Errorf("signal %s is there %d times", name, n)
		}
	}
}

// measure runs all kinds of requests, each repeatedly for a while and at least once to its end. It returns the longest
// duration of all requests, and the longest of those that share no rows with the paused app.
func measure(t *testing.T, x *storetest.Traffic, d time.Duration) (worst, apart time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(d)
	do := func(op storetest.Op, most *time.Duration) {
		all.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				err := op.Do(ctx)
				cancel()
				took := time.Since(began)
				mu.Lock()
				*most = max(*most, took)
				mu.Unlock()
				if err != nil {
					t.Errorf("%s, after %s: %v", op.Name, took, err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for _, op := range x.Ops() {
		do(op, &worst)
	}
	do(storetest.Op{Name: "apart", Do: x.Apart}, &apart)
	all.Wait()
	return worst, apart
}

// process is the other app.
type process struct {
	cmd    *exec.Cmd
	in     interface{ Close() error }
	output chan string
}

func startOther(t *testing.T, at string, payload int) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOtherApp$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), otherApp+"="+at+" "+strconv.Itoa(payload))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, in, make(chan string, 1)}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "failed") && !strings.Contains(lines.Text(), "unavailable") {
				t.Errorf("the other app: %s", lines.Text())
			}
			select {
			case p.output <- lines.Text():
			default:
			}
		}
		close(p.output)
	}()
	t.Cleanup(p.end)
	return p
}

// progress waits until the other app has made progress.
func (p *process) progress(t *testing.T) {
	t.Helper()
	select {
	case <-p.output: // output from before
	default:
	}
	for end := time.After(2 * time.Minute); ; {
		select {
		case line, ok := <-p.output:
			if !ok {
				t.Fatal("the other app is gone")
			}
			if strings.HasPrefix(line, "did signal") {
				return
			}
		case <-end:
			t.Fatal("the other app does not get on")
		}
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *process) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
