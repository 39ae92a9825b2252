package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFramesComeBackAsTheyWereSent(t *testing.T) {
	retry := false
	want := []Frame{
		{Header: Header{T: Ping}},
		{
			Header: Header{T: Invoke, ID: "7", Activity: "index", Keys: map[string]string{"run_id": "R"}, IsNew: true},
			Body:   []byte{0, 1, 255},
		},
		{Header: Header{T: Error, ID: "7", Type: "UserError", Message: "né", Retryable: &retry, Details: []byte(`{"a":1}`)}},
		{Header: Header{T: Result, ID: "8"}, Body: bytes.Repeat([]byte("x"), 100_000)},
	}
	var stream []byte
	for _, f := range want {
		var err error
		if stream, err = Append(stream, f, DefaultLimits); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(bytes.NewReader(stream), DefaultLimits, nil)
	for i := range want {
		got, err := r.Read()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if d := cmp.Diff(got, want[i]); d != "" {
			t.Errorf("frame %d (-got +want):\n%s", i, d)
		}
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) || errors.Is(err, ErrMalformed) {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func raw(header string, bodyLen uint32, body string) string {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], uint32(len(header)))
	binary.LittleEndian.PutUint32(b[4:], bodyLen)
	return string(b[:]) + header + body
}

func TestBrokenFramesAreMalformed(t *testing.T) {
	for name, in := range map[string]string{
		"prefix of all ones":     "\xff\xff\xff\xff\xff\xff\xff\xff",
		"body of 2 GiB":          raw(`{"t":"x"}`, 2<<30, ""),
		"header not JSON":        raw(`hello`, 0, ""),
		"header an array":        raw(`[1]`, 0, ""),
		"header empty":           raw(``, 0, ""),
		"header null":            raw(`null`, 0, ""),
		"header without a type":  raw(`{"id":"1"}`, 0, ""),
		"header not UTF-8":       raw("{\"t\":\"\xff\"}", 0, ""),
		"text":                   "hello world, this is not a frame\n",
		"prefix cut short":       "\x01\x00",
		"header cut short":       raw(`{"t":"x"}`, 0, "")[:12],
		"body cut short":         raw(`{"t":"x"}`, 5, "abc"),
		"member of a wrong type": raw(`{"t":"x","epoch":"one"}`, 0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			if f, err := NewReader(strings.NewReader(in), DefaultLimits, nil).Read(); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %+v, %v, want ErrMalformed", f, err)
			}
		})
	}
}

func TestLimitsAreCheckedBeforeAllocating(t *testing.T) {
	in := raw(`{"t":"x"}`, 1<<31, "")
	if n := testing.AllocsPerRun(10, func() {
		_, _ = NewReader(strings.NewReader(in), DefaultLimits, nil).Read()
	}); n > 12 { // the reader itself and the error; a 2 GiB body would also end the test
		t.Errorf("%v allocations for a frame that is too large", n)
	}
	if _, err := Append(nil, Frame{Header: Header{T: "x"}, Body: make([]byte, 11)}, Limits{
		Header: 100, Body: 10,
	}); !errors.Is(err, ErrMalformed) {
		t.Errorf("sending a body over the limit: %v", err)
	}
	if _, err := Append(nil, Frame{Header: Header{T: strings.Repeat("x", 100)}}, Limits{
		Header: 100, Body: 10,
	}); !errors.Is(err, ErrMalformed) {
		t.Errorf("sending a header over the limit: %v", err)
	}
}

func TestHalfAFrameThenSilenceEndsAtTheDeadline(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() { _, _ = there.Write([]byte("\x05\x00")) }()
	r := NewReader(here, DefaultLimits, here.SetReadDeadline)
	r.SetPatience(20 * time.Millisecond)
	if _, err := r.Read(); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v, want ErrMalformed", err)
	}
}

func FuzzRead(f *testing.F) {
	ok, _ := Append(
		nil, Frame{Header: Header{T: Result, ID: "1", Usage: &Usage{CPUMS: 1}}, Body: []byte("body")}, DefaultLimits,
	)
	f.Add(ok)
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte(raw(`{"t":"x"}`, 5, "abc")))
	f.Fuzz(func(t *testing.T, in []byte) {
		limits := Limits{Header: 1 << 10, Body: 1 << 12}
		r := NewReader(bytes.NewReader(in), limits, nil)
		for {
			got, err := r.Read()
			if err != nil {
				return
			}
			if len(got.Body) > limits.Body {
				t.Fatalf("body of %d bytes passed a limit of %d", len(got.Body), limits.Body)
			}
			second, err := Append(nil, got, DefaultLimits)
			if err != nil {
				t.Fatalf("a frame that was read cannot be sent: %v", err)
			}
			back, err := NewReader(bytes.NewReader(second), DefaultLimits, nil).Read()
			if err != nil {
				t.Fatalf("a frame that was sent cannot be read: %v", err)
			}
			if back.T != got.T || back.ID != got.ID || !bytes.Equal(back.Body, got.Body) {
				t.Fatalf("got %+v, want %+v", back, got)
			}
		}
	})
}
