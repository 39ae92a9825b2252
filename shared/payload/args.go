package payload

import (
	"strconv"
)

// DecodeArgs decodes an argument array into the pointers outs, by position. If fewer values are stored than outs has
// pointers, the others do not change; if more are stored, the error is ErrArgumentCount with both numbers. None counts
// as no arguments.
func DecodeArgs(p Payload, outs ...any) error {
	n, err := DecodeSomeArgs(p, outs...)
	if err == nil && n > len(outs) {
		return fail(ErrArgumentCount, "called with %s, but takes %d", counted(n), len(outs))
	}
	return err
}

// DecodeSomeArgs decodes as many arguments as there are outs, and returns how many the list has.
func DecodeSomeArgs(p Payload, outs ...any) (n int, err error) {
	if p.IsZero() {
		return 0, nil
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openFrame(p.Blob)
	if err != nil {
		return n, err
	}
	items, err := r.arguments()
	if err != nil {
		return n, err
	}
	for ; ; n++ {
		more, err := r.next(&items)
		if err != nil {
			return n, err
		}
		if !more {
			break
		}
		if n < len(outs) {
			err = r.into(outs[n])
		} else {
			err = r.skip() // only counted
		}
		if err != nil {
			return n, atArgument(n, err)
		}
	}
	return n, r.mustBeAtEnd()
}

// Args splits an argument array into one payload per element; an empty payload has none. For a value that is not an
// array the error is ErrArgumentCount.
func Args(p Payload) ([]Payload, error) {
	if p.IsZero() {
		return nil, nil
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openFrame(p.Blob)
	if err != nil {
		return nil, err
	}
	items, err := r.arguments()
	if err != nil {
		return nil, err
	}
	out := []Payload{}
	for {
		more, err := r.next(&items)
		if err != nil {
			return nil, err
		}
		if !more {
			return out, r.mustBeAtEnd()
		}
		var arg Payload
		if err := r.payload(&arg); err != nil {
			return nil, at(err, "["+strconv.Itoa(len(out))+"]")
		}
		out = append(out, arg)
	}
}

// arguments starts the array of an argument list.
func (r *reader) arguments() (blocks, error) {
	tag, err := r.tag()
	if err != nil {
		return blocks{}, err
	}
	if tag != tagArray {
		return blocks{}, fail(ErrArgumentCount, "the arguments are not an array")
	}
	return r.enter(1)
}
