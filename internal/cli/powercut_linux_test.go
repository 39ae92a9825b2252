package cli_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/history"
)

// powercuts is the variable with the number of crash images per test.
const powercuts = "SOJOURN_TEST_POWERCUTS"

// A power cut is simulated from the system calls of the app. strace records its writes, syncs, truncations and removals
// in the data directory, and its writes to sockets. A crash image contains the files as a disk could have them at one
// point of the record: all synced writes, and any subset of the others in any order, torn at sectors of 512 bytes.
// Every image must contain the writes that were acknowledged before that point.

// sector is the size in bytes that a disk writes atomically.
const sector = 512

// sysEvent is one system call of the record.
type sysEvent struct {
	kind string // write, truncate, sync, syncdir, create, remove, answer
	path string
	at   int64 // of a write: its offset; of a truncation: the size
	data []byte
	// of a sync: how many events were recorded when it began; it covers no write behind them
	covers int
}

// image is the simulated state of a file on disk: the synced content, and the writes that a power failure may lose.
type image struct {
	durable []byte
	entry   bool       // its name in the folder is durable
	before  *image     // the file that the name refers to until then, after a removal
	pending []sysEvent // not synced yet
	places  []int      // positions of the pending events in the record
	exists  bool
}

func TestAcknowledgedWorkSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	n, operations := 24, 40
	if text := os.Getenv(powercuts); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		operations = 200
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "power.db")
	runs := map[string]string{} // run of each of a worker's tasks
	var traces []string
	// The first app is stopped, which checkpoints the log and removes it; the second is killed.
	for turn, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		trace := filepath.Join(t.TempDir(), "trace")
		traces = append(traces, trace)
		addr := address(t)
		app := traced(t, trace, dir, path, addr)
		c := client{t: t, base: "http://" + addr, plain: true}
		c.up()
		pid := holder(t, path)
		t.Cleanup(func() { // an app that is still traced would outlive strace
			select {
			case <-app.ended:
			default:
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		maps.Copy(runs, pressPower(t, c, turn, operations))
		if err := syscall.Kill(pid, end); err != nil {
			t.Fatal(err)
		}
		<-app.ended
	}
	var record []sysEvent
	for _, trace := range traces {
		record = readTrace(t, trace, dir, record)
	}
	answers := 0
	for _, e := range record {
		if e.kind == "answer" {
			answers++
		}
	}
	if answers < 2*2*operations { // more than the runs and all their operations
		t.Fatalf("%d answers in a record of %d calls", answers, len(record))
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("%d system calls, %d answers; seed %d", len(record), answers, seed)
	checked := 0
	for i := range n {
		cut := 1 + random.IntN(len(record))
		acknowledged := makeImage(t, record[:cut], path, random)
		checked += len(acknowledged)
		if err := checkImage(t.Context(), path, acknowledged, runs); err != nil {
			t.Errorf("image %d (seed %d), cut at call %d of %d, %d answers: %v",
				i, seed, cut, len(record), len(acknowledged), err)
		}
	}
	t.Logf("%d images, with what %d answers said", n, checked)
	if checked == 0 {
		t.Error("no operation was acknowledged before any cut")
	}
}

// traced starts an app under strace.
func traced(t *testing.T, trace, dir, path, addr string) *process {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err == nil {
		err = exec.CommandContext(t.Context(), strace, "-o", os.DevNull, "true").Run()
	}
	if err != nil {
		if strings.Contains(os.Getenv("SOJOURN_TEST_REQUIRE"), "strace") {
			t.Fatal("strace does not work here: ", err)
		}
		t.Skip("strace does not work here: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchAs(t, strace, dir, env{
		"SOJOURN_AUTH": "none", "SOJOURN_ADDR": addr, "SOJOURN_DATABASE_URL": "sqlite:" + path,
	}, "-f", "-y", "-qq", "-xx", "-s", "1000000", "-e", "signal=none", "-o", trace,
		"-e", "trace=pwrite64,write,writev,ftruncate,fsync,fdatasync,"+
			"?unlink,unlinkat,?rename,renameat,renameat2,?open,openat",
		self, "app")
}

// holder returns the PID in the lock file of an open database.
func holder(t *testing.T, path string) (pid int) {
	t.Helper()
	raw, err := os.ReadFile(path + ".lock")
	if err == nil {
		_, err = fmt.Sscan(string(raw), &pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// pressPower makes clients start runs, signal and end them, and a worker complete the others. It returns the run of
// each completed task.
func pressPower(t *testing.T, c client, turn, operations int) map[string]string {
	t.Helper()
	c.must(http.MethodPost, "/api/worker/register", map[string]any{
		"worker_id": "power", "task_queue": "power", "supported_workflow_types": []string{"power"},
	}, nil)
	var work sync.WaitGroup
	for client := range 4 {
		work.Go(func() {
			for n := client; n < operations; n += 4 {
				id, queue := fmt.Sprintf("power-%d-%d", turn, n), "power"
				if n%2 == 0 {
					queue = "power.unserved"
				}
				c.must(http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": id, "workflow_type": "power", "task_queue": queue, "input": []any{strings.Repeat("x", n*20)},
				}, nil)
				if n%2 == 0 {
					c.must(http.MethodPost, "/api/workflows/"+id+"/signal/sig-"+id, map[string]any{}, nil)
					c.must(http.MethodPost, "/api/workflows/"+id+"/terminate", map[string]any{"reason": "power"}, nil)
				}
			}
		})
	}
	runs := map[string]string{}
	for len(runs) < operations/2 {
		var poll struct {
			Task *struct {
				ID      string `json:"task_id"`
				Run     string `json:"run_id"`
				Attempt int    `json:"workflow_task_attempt"`
			} `json:"task"`
		}
		c.must(http.MethodPost, "/api/worker/workflow-tasks/poll", map[string]any{
			"worker_id": "power", "task_queue": "power", "timeout_seconds": 1,
		}, &poll)
		if poll.Task == nil {
			continue
		}
		var report struct {
			Recorded bool `json:"recorded"`
		}
		c.must(http.MethodPost, "/api/worker/workflow-tasks/"+poll.Task.ID+"/complete", map[string]any{
			"lease_owner": "power", "workflow_task_attempt": poll.Task.Attempt,
			"commands": []any{map[string]any{"type": "complete_workflow"}},
		}, &report)
		if !report.Recorded {
			t.Fatalf("task %s of run %s was not recorded", poll.Task.ID, poll.Task.Run)
		}
		runs[poll.Task.ID] = poll.Task.Run
	}
	work.Wait()
	return runs
}

var (
	syscallLine = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	resumedLine = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)$`)
	resultOf    = regexp.MustCompile(`\) += (-?\d+|\?)[^=]*$`)
	ofFile      = regexp.MustCompile(`^\d+<([^>]*)>`)
	quoted      = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"`)
)

// readTrace appends the recorded calls of strace to a record: those on the database of a folder, and responses.
func readTrace(t *testing.T, trace, dir string, record []sysEvent) []sysEvent {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type begun struct {
		text   string
		covers int
	}
	under := map[string]begun{} // calls that have begun and not ended, by thread
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		text, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return record
		}
		if err != nil {
			t.Fatal(err)
		}
		text, covers := strings.TrimSuffix(text, "\n"), len(record)
		if m := resumedLine.FindStringSubmatch(text); m != nil {
			b := under[m[1]]
			delete(under, m[1])
			text, covers = b.text+m[3], b.covers
		} else if whole, ok := strings.CutSuffix(text, " <unfinished ...>"); ok {
			thread, _, _ := strings.Cut(whole, " ")
			under[thread] = begun{whole, covers}
			// A response counts from the moment at which the app started to write it.
			if e, ok := parseCall(t, whole, dir, covers); ok && e.kind == "answer" {
				record = append(record, e)
			}
			continue
		} else if e, ok := parseCall(t, text, dir, covers); ok && e.kind == "answer" {
			record = append(record, e)
			continue
		}
		result := resultOf.FindStringSubmatch(text)
		if result == nil || strings.HasPrefix(result[1], "-") || result[1] == "?" {
			continue
		}
		if e, ok := parseCall(t, text, dir, covers); ok && e.kind != "answer" {
			record = append(record, e)
		}
	}
}

// parseCall parses one system call; ok is false for calls that do not change the database.
func parseCall(t *testing.T, text, dir string, covers int) (e sysEvent, ok bool) {
	t.Helper()
	m := syscallLine.FindStringSubmatch(text)
	if m == nil {
		return e, false
	}
	name, arguments := m[2], m[3]
	of := ""
	if m := ofFile.FindStringSubmatch(arguments); m != nil {
		of = unhex(t, m[1])
	}
	var texts []string
	for _, q := range quoted.FindAllStringSubmatch(arguments, -1) {
		texts = append(texts, unhex(t, q[1]))
	}
	ours := func(path string) bool {
		base := filepath.Base(path) // SQLite rebuilds the index of its log; the lock has no data
		return filepath.Dir(path) == dir && strings.HasPrefix(base, "power.db") &&
			!strings.HasSuffix(base, "-shm") && !strings.HasSuffix(base, ".lock")
	}
	number := func(from string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(from), 10, 64)
		if err != nil {
			t.Fatalf("%.200s: %v", text, err)
		}
		return n
	}
	// The last argument, before the result.
	last := func() int64 {
		head := arguments[:strings.LastIndex(arguments, ")")]
		return number(head[strings.LastIndex(head, ",")+1:])
	}
	switch name {
	case "pwrite64":
		if !ours(of) || !strings.Contains(arguments, ")") {
			return e, false
		}
		return sysEvent{kind: "write", path: of, at: last(), data: []byte(texts[0])}, true
	case "ftruncate":
		if !ours(of) || !strings.Contains(arguments, ")") {
			return e, false
		}
		return sysEvent{kind: "truncate", path: of, at: last()}, true
	case "fsync", "fdatasync":
		if of == dir {
			return sysEvent{kind: "syncdir", covers: covers}, true
		}
		return sysEvent{kind: "sync", path: of, covers: covers}, ours(of)
	case "open", "openat":
		if len(texts) == 0 || !strings.Contains(arguments, "O_CREAT") || !ours(texts[0]) {
			return e, false
		}
		return sysEvent{kind: "create", path: texts[0]}, true
	case "unlink", "unlinkat":
		if len(texts) == 0 || !ours(texts[0]) {
			return e, false
		}
		return sysEvent{kind: "remove", path: texts[0]}, true
	case "rename", "renameat", "renameat2":
		if len(texts) == 2 && (ours(texts[0]) || ours(texts[1])) {
			t.Fatalf("a database file was renamed, which this test does not know: %.300s", text)
		}
	case "write", "writev":
		if ours(of) {
			t.Fatalf("written by %s, which this test does not know: %.300s", name, text)
		}
		if strings.HasPrefix(of, "socket:") && len(texts) > 0 {
			return sysEvent{kind: "answer", data: []byte(strings.Join(texts, ""))}, true
		}
	}
	return e, false
}

// unhex decodes the output of strace -xx.
func unhex(t *testing.T, text string) string {
	t.Helper()
	if !strings.HasPrefix(text, `\x`) {
		return text
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// makeImage writes a possible state of the disk after a power cut behind these calls, and returns the acknowledged
// responses. It writes the files in place, so that the main file keeps its commit counter.
func makeImage(t *testing.T, record []sysEvent, path string, random *rand.Rand) (answers []string) {
	t.Helper()
	files := map[string]*image{}
	of := func(path string) *image {
		if files[path] == nil {
			files[path] = &image{}
		}
		return files[path]
	}
	for i, e := range record {
		switch e.kind {
		case "answer":
			answers = append(answers, string(e.data))
		case "create":
			f := of(e.path)
			if !f.exists && f.entry { // the folder may still have the file that was removed
				f = &image{before: f}
				files[e.path] = f
			}
			f.exists = true
		case "remove":
			of(e.path).exists = false
		case "write", "truncate":
			f := of(e.path)
			f.pending, f.places = append(f.pending, e), append(f.places, i)
		case "sync":
			of(e.path).sync(e.covers)
		case "syncdir":
			for p, f := range files {
				if f.before, f.entry = nil, f.exists; !f.exists {
					delete(files, p)
				}
			}
		}
	}
	for _, name := range []string{"", "-wal", "-journal", "-shm"} {
		full, f := path+name, files[path+name]
		if f != nil && f.before != nil && random.IntN(2) == 0 {
			f = f.before
		}
		if f == nil || f.exists != f.entry && random.IntN(2) == 0 || !f.exists && !f.entry {
			if name != "" {
				_ = os.Remove(full)
			} else if err := os.Truncate(full, 0); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content := f.cut(random)
		out, err := os.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.Write(content)
		if err := errors.Join(err, out.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

// sync makes writes durable that were issued before the call began.
func (f *image) sync(covers int) {
	n, _ := slices.BinarySearch(f.places, covers)
	for _, e := range f.pending[:n] {
		f.durable = carried(f.durable, e)
	}
	f.pending, f.places = slices.Clone(f.pending[n:]), slices.Clone(f.places[n:])
}

func carried(content []byte, e sysEvent) []byte {
	if e.kind == "truncate" {
		return append(content[:min(int(e.at), len(content))], make([]byte, max(0, int(e.at)-len(content)))...)
	}
	if need := int(e.at) + len(e.data) - len(content); need > 0 {
		content = append(content, make([]byte, need)...)
	}
	copy(content[e.at:], e.data)
	return content
}

// cut returns a possible content of a file: of the writes that were not synced it contains none, all, or any sectors in
// any order.
func (f *image) cut(random *rand.Rand) []byte {
	content := slices.Clone(f.durable)
	var parts []sysEvent
	for _, e := range f.pending {
		if e.kind == "truncate" {
			parts = append(parts, e)
			continue
		}
		for at := int64(0); at < int64(len(e.data)); { // at sector boundaries
			next := min((e.at+at)/sector*sector+sector-e.at, int64(len(e.data)))
			parts = append(parts, sysEvent{kind: "write", at: e.at + at, data: e.data[at:next]})
			at = next
		}
	}
	switch random.IntN(4) {
	case 0: // nothing more was written to the disk
		return content
	case 1: // everything was written
	case 2: // up to some point, torn there
		parts = parts[:random.IntN(len(parts)+1)]
	case 3: // any part was written, in any order
		share := random.Float64()
		parts = slices.DeleteFunc(parts, func(sysEvent) bool { return random.Float64() < share })
		random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	for _, e := range parts {
		content = carried(content, e)
	}
	return content
}

var (
	answerID     = regexp.MustCompile(`"workflow_id":"([^"]+)"`)
	answerRun    = regexp.MustCompile(`"run_id":"([^"]+)"`)
	answerSignal = regexp.MustCompile(`"signal_name":"([^"]+)"`)
	answerTask   = regexp.MustCompile(`"task_id":"([^"]+)"`)
)

// checkImage opens an image of the database after the power cut with the store, and checks that it contains all
// acknowledged writes.
func checkImage(ctx context.Context, path string, answers []string, runs map[string]string) (err error) {
	s, err := sqlite.Open(ctx, path, sqldb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return err
	}
	var whole string
	err = errors.Join(db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&whole), db.Close())
	if err != nil || whole != "ok" {
		return fmt.Errorf("integrity: %s %w", whole, err)
	}
	return s.View(ctx, func(r store.Reader) error {
		for _, a := range answers {
			if err := checkAnswer(ctx, r, a, runs); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkAnswer checks that the store contains the write that a response acknowledged. Responses to polls and probes
// acknowledge nothing.
func checkAnswer(ctx context.Context, r store.Reader, answer string, runs map[string]string) error {
	first := func(of *regexp.Regexp) string {
		if m := of.FindStringSubmatch(answer); m != nil {
			return m[1]
		}
		return ""
	}
	closed := func(run string) error {
		if h, err := r.Run(ctx, run); err != nil || h.Status.Open() {
			return fmt.Errorf("the end of run %s was answered: %w", run, errors.Join(err, errors.New("it is open")))
		}
		return nil
	}
	id, run := first(answerID), first(answerRun)
	switch {
	case strings.Contains(answer, `"outcome":"started_new"`):
		w, err := r.Workflow(ctx, engine.WorkflowKey{Namespace: "default", ID: id})
		if err != nil || w.RunID != run {
			return fmt.Errorf("the start of %s as run %s was answered, found %q: %w", id, run, w.RunID, err)
		}
	case strings.Contains(answer, `"outcome":"signal_received"`):
		events, err := r.Events(ctx, run, 0, 1000, 1000, 1<<20)
		if err != nil || !slices.ContainsFunc(events, func(e history.Event) bool {
			d, ok := e.Data.(*history.SignalReceived)
			return ok && d.SignalName == first(answerSignal)
		}) {
			return fmt.Errorf("signal %s to run %s was answered, and is not among %d events: %w",
				first(answerSignal), run, len(events), err)
		}
	case strings.Contains(answer, `"operation":"terminate"`):
		return closed(run)
	case strings.Contains(answer, `"recorded":true`):
		if of, ok := runs[first(answerTask)]; ok {
			return closed(of)
		}
	}
	return nil
}
