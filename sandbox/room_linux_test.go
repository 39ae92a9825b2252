package sandbox

import (
	"bytes"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// A body of any size is copied once into shared memory and once out of it. The result is one separate slice that the
// other process cannot change.
func TestTheRoomIsReadOnce(t *testing.T) {
	for _, size := range []int{64 << 10, 1 << 20} {
		r, err := newSharedMemory()
		if err != nil {
			t.Skip("no room: ", err)
		}
		defer r.close()
		body := bytes.Repeat([]byte{'a'}, size)
		var got []byte
		if n := testing.AllocsPerRun(10, func() {
			if err := r.write(body); err != nil {
				t.Fatal(err)
			}
			if got, err = r.read(size); err != nil {
				t.Fatal(err)
			}
		}); n > 1 {
			t.Errorf("%v allocations for %d bytes", n, size)
		}
		// The executor writes later, to its own mapping.
		if _, err := r.file.WriteAt([]byte("changed"), 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, body) {
			t.Error("what was read is changed by who has the room")
		}
		if now, err := r.read(7); err != nil || string(now) != "changed" {
			t.Errorf("read %q, %v", now, err)
		}
	}
}

// An executor cannot make the shared memory unreadable for the worker: its size is sealed, and removed pages read as
// zeros. Otherwise the worker would die of SIGBUS.
func TestAnExecutorCannotTakeSharedMemoryFromTheWorker(t *testing.T) {
	r, err := newSharedMemory()
	if err != nil {
		t.Skip("no room: ", err)
	}
	theirs := r.file // the file that an executor receives
	for _, size := range []int64{0, 4096, 1 << 30} {
		if err := theirs.Truncate(size); err == nil {
			t.Errorf("the room has %d bytes now", size)
		}
	}
	body := bytes.Repeat([]byte{'a'}, 1<<20)
	if err := r.write(body); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(
		int(theirs.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(body)),
	); err != nil {
		t.Fatal(err)
	}
	if got, err := r.read(len(body)); err != nil || !bytes.Equal(got, make([]byte, len(body))) {
		t.Errorf("not zeros: %v", err)
	}
	most := frame.DefaultLimits.Body
	if _, err := r.read(most); err != nil {
		t.Errorf("all of it: %v", err)
	}
	if _, err := r.read(most + 1); err == nil {
		t.Error("more than there is was read")
	}
	if err := r.write(make([]byte, most+1)); err == nil {
		t.Error("more than there is room for was written")
	}
	// Close the shared memory while goroutines read and write it.
	var using sync.WaitGroup
	for range 4 {
		using.Go(func() {
			for {
				if _, err := r.read(len(body)); err != nil {
					return
				}
				if err := r.write(body); err != nil {
					return
				}
				r.empty()
			}
		})
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
	using.Wait()
	r.empty()
}
