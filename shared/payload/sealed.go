package payload

import "strings"

// Sealed is the content of a payload that a codec has encoded, for example encrypted. It is stored as a map with the
// members sojourn.codec, key_id and data, so that clients without the codec can still decode the payload to that map.
type Sealed struct {
	Codec string // name of the codec
	KeyID string // key that decodes Data; empty: none
	Data  []byte
}

// The members of the map.
const (
	sealedCodec = "sojourn.codec"
	sealedKey   = "key_id"
	sealedData  = "data"
)

// MaxDecodedBytes is the maximum length of a blob that a codec has decoded or will encode. MaxBytes limits only the
// blobs that are stored and transported.
const MaxDecodedBytes = 16 << 20

// Seal returns the payload of a sealed value, or of a list of arguments: an array with the map as its only element.
func Seal(s Sealed, args bool) (Payload, error) {
	b := buffers.Get().(*buffer)
	defer b.release()
	w := writer{buf: append(b.bin[:0], header...)}
	if args {
		w.buf = append(w.buf, tagArray)
		w.number(1)
	}
	err := w.sealed(s)
	if args {
		w.buf = append(w.buf, 0)
	}
	if b.bin = w.buf; err != nil {
		return Payload{}, err
	}
	return b.seal(MaxDecodedBytes)
}

// SealFrame returns the Avro frame of the payload that Seal returns for a value: the bytes that the next codec encodes.
func SealFrame(s Sealed) ([]byte, error) {
	w := writer{buf: []byte(header)}
	if err := w.sealed(s); err != nil {
		return nil, err
	}
	if size := strict64.EncodedLen(len(w.buf)); size > MaxDecodedBytes {
		return nil, tooLarge(size, MaxDecodedBytes)
	}
	return w.buf, nil
}

// sealed writes the map.
func (w *writer) sealed(s Sealed) error {
	w.buf = append(w.buf, tagMap)
	w.number(3)
	for _, member := range [...][2]string{{sealedCodec, s.Codec}, {sealedKey, s.KeyID}} {
		if err := w.text(member[0]); err != nil {
			return err
		}
		if err := w.string(member[1]); err != nil {
			return err
		}
	}
	if err := w.text(sealedData); err != nil {
		return err
	}
	w.bytes(s.Data)
	w.buf = append(w.buf, 0)
	return nil
}

// The lengths of the text that shows that most payloads are not sealed, and of the bytes that it encodes.
const (
	sealedText  = 20
	sealedBytes = sealedText / 4 * 3
)

// Unseal returns the content of a sealed value or, with args, of a sealed list of arguments. It returns false for every
// other payload.
func Unseal(p Payload, args bool) (Sealed, bool) {
	if !MaybeSealed(p.Blob, args) {
		return Sealed{}, false
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openFrame(p.Blob)
	if err != nil {
		return Sealed{}, false
	}
	s, ok := r.sealed(args)
	return s, ok && r.pos == len(r.buf)
}

// IsSealed reports whether a blob is a sealed value or a sealed list of arguments.
func IsSealed(blob string) bool {
	_, value := Unseal(Payload{Blob: blob}, false)
	if value {
		return true
	}
	_, list := Unseal(Payload{Blob: blob}, true)
	return list
}

// SealedPrefix is the beginning of the blob of every value that Seal returns.
const SealedPrefix = "wwHioz3/VYAiNw4GGnNvam91cm4uY29k"

// MaybeSealed reads the beginning of a blob. It returns false for nearly all payloads that Unseal does not accept, and
// true for all others.
func MaybeSealed(blob string, args bool) bool {
	if len(blob) < sealedText || !strings.HasPrefix(blob, headerText) {
		return false
	}
	var begin [sealedBytes]byte
	if n, err := strict64.Decode(begin[:], []byte(blob[:sealedText])); err != nil || n != sealedBytes {
		return false
	}
	datum := begin[len(header):]
	if args {
		if datum[0] != tagArray || datum[1] != 2 { // one element
			return false
		}
		datum = datum[2:]
	}
	return datum[0] == tagMap && datum[1] == 6 // three members
}

// headerText is the beginning of the text of every frame.
const headerText = "wwHioz3/VYAiN"

// sealed reads the map, which has exactly the three members, in any order.
func (r *reader) sealed(args bool) (s Sealed, ok bool) {
	var list blocks
	if args {
		tag, err := r.tag()
		if err != nil || tag != tagArray {
			return s, false
		}
		if list, err = r.enter(1); err != nil {
			return s, false
		}
		if more, err := r.next(&list); err != nil || !more {
			return s, false
		}
	}
	tag, err := r.tag()
	if err != nil || tag != tagMap {
		return s, false
	}
	members, err := r.enter(2)
	if err != nil {
		return s, false
	}
	found := map[string]bool{}
	for {
		more, err := r.next(&members)
		if err != nil {
			return s, false
		}
		if !more {
			break
		}
		name, err := r.text()
		if err != nil {
			return s, false
		}
		found[string(name)] = true
		if !r.sealedMember(string(name), &s) {
			return s, false
		}
	}
	if args {
		if more, err := r.next(&list); err != nil || more {
			return s, false
		}
	}
	return s, len(found) == 3 && s.Codec != ""
}

// sealedMember reads the value of a member. It returns false for an unknown member and for a value of another type.
func (r *reader) sealedMember(name string, s *Sealed) bool {
	tag, err := r.tag()
	if err != nil {
		return false
	}
	switch {
	case name == sealedCodec && tag == tagString:
		text, err := r.text()
		s.Codec = string(text)
		return err == nil
	case name == sealedKey && tag == tagString:
		text, err := r.text()
		s.KeyID = string(text)
		return err == nil
	case name == sealedData && tag == tagBytes:
		data, err := r.bytes()
		s.Data = append([]byte{}, data...)
		return err == nil
	}
	return false
}

// TooLarge returns the error for an encoded payload of size bytes, which exceeds MaxBytes.
func TooLarge(size int) error { return tooLarge(size, MaxBytes) }

// Frame returns the Avro frame of a payload: the bytes that a codec encodes.
func Frame(p Payload) ([]byte, error) {
	return appendDecoded(nil, p.Text())
}

// OfFrame returns the payload of an Avro frame, which it checks completely.
func OfFrame(frame []byte) (Payload, error) {
	b := buffers.Get().(*buffer)
	defer b.release()
	if strict64.EncodedLen(len(frame)) > MaxDecodedBytes {
		return Payload{}, tooLarge(strict64.EncodedLen(len(frame)), MaxDecodedBytes)
	}
	r, err := openBytes(frame)
	if err := valid(r, err); err != nil {
		return Payload{}, err
	}
	b.bin = append(b.bin[:0], frame...)
	return b.seal(MaxDecodedBytes)
}
