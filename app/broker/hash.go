package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every app of every release must recognize a repeated report. Therefore history stores the hashes, and hashes of
// earlier releases must still be recognized.

// bytesMark is the prefix of hashes over raw payload bytes. Older releases hashed JSON, without a prefix; such hashes
// still exist in histories.
const bytesMark = "b:"

// hashBytes returns the hash of b. Collecting the bytes first costs one allocation; writing to a hash costs several per
// part.
func hashBytes(b []byte) string { return hexOf("", b) }

// hashPayloadBytes is like hashBytes, for hashes over raw payload bytes.
func hashPayloadBytes(b []byte) string { return hexOf(bytesMark, b) }

func hexOf(mark string, b []byte) string {
	sum := sha256.Sum256(b)
	var text [len(bytesMark) + 24]byte
	return string(hex.AppendEncode(append(text[:0], mark...), sum[:12]))
}

// hashOf returns the hash of an outcome's JSON, by which a repeated report is recognized.
func hashOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return hashBytes(raw)
}

// hashResult returns the hash of an encoded result.
func hashResult(blob string) string {
	return hashPayloadBytes(addBlob(make([]byte, 0, 8+len(blob)), blob))
}

// hashCommands returns a hash of the commands of a workflow task. It covers the JSON of the commands, so that every
// member is included, and the raw bytes of their payloads.
func hashCommands(commands []protocol.Command) string {
	bare, blobs := slices.Clone(commands), 0
	for i := range bare {
		c := &bare[i]
		blobs += 3*8 + len(c.Arguments.Blob) + len(c.Result.Blob) + len(c.Entries.Blob)
		c.Arguments, c.Result, c.Entries = payload.Payload{}, payload.Payload{}, payload.Payload{}
	}
	raw, err := json.Marshal(bare)
	if err != nil {
		return ""
	}
	all := slices.Grow(raw, blobs)
	for i := range commands {
		all = addBlob(all, commands[i].Arguments.Blob)
		all = addBlob(all, commands[i].Result.Blob)
		all = addBlob(all, commands[i].Entries.Blob)
	}
	return hashPayloadBytes(all)
}

// hashParts returns the hash of the parts of a request.
func hashParts(parts ...string) string {
	var all []byte
	for _, part := range parts {
		all = addBlob(all, part)
	}
	return hashBytes(all)
}

// comparableInput returns what the hash of a request covers of its input. An input is different each time it is
// encrypted, so only the fact that a codec encoded it is compared. Otherwise the repetition of a start after a crash of
// its caller would be refused.
func comparableInput(input json.RawMessage) string {
	var p payload.Payload
	envelope := bytes.HasPrefix(bytes.TrimSpace(input), []byte("{")) && json.Unmarshal(input, &p) == nil
	if envelope && payload.IsSealed(p.Blob) {
		return encodedByCodec
	}
	return string(input)
}

// comparableBlob is comparableInput for the encoded arguments of a signal or an update.
func comparableBlob(blob string) string {
	if payload.IsSealed(blob) {
		return encodedByCodec
	}
	return blob
}

const encodedByCodec = "encoded by a codec"

// addBlob appends the length of a blob and the blob, so that different splits of the same bytes have different hashes.
func addBlob(to []byte, blob string) []byte {
	return append(binary.BigEndian.AppendUint64(to, uint64(len(blob))), blob...)
}

// sameOutcome reports whether a stored hash, computed by this or an older release, is the hash of this activity
// outcome.
func sameOutcome(in *protocol.CompleteItem, stored, now string) bool {
	return stored == now || in.Failure == nil && stored == hashOf(in.Result.Blob)
}
