package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A report that is sent again must be known as the same one, by whichever app it reaches and whichever release
// that app is. So hashes stand in history, and a hash that an earlier release would have taken still has to be
// recognised.

// bytesMark begins a hash that was taken of payloads as they are. A hash without it was taken of JSON, as all
// were before; such hashes still stand in histories.
const bytesMark = "b:"

// sumOf is the hash of what was gathered. Gathering first costs one piece of memory; a hash that is written to costs
// several for each piece.
func sumOf(b []byte) string { return hexOf("", b) }

// markedSum is sumOf for payloads as they are.
func markedSum(b []byte) string { return hexOf(bytesMark, b) }

func hexOf(mark string, b []byte) string {
	sum := sha256.Sum256(b)
	var text [len(bytesMark) + 24]byte
	return string(hex.AppendEncode(append(text[:0], mark...), sum[:12]))
}

// hashOf tells outcomes apart by their JSON, so that a repeated one is known.
func hashOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return sumOf(raw)
}

// hashResult tells results apart.
func hashResult(blob string) string {
	return markedSum(addBlob(make([]byte, 0, 8+len(blob)), blob))
}

// hashCommands returns a hash of the commands of a workflow task: it covers the JSON of the commands, so that every
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
	return markedSum(all)
}

// addBlob adds a blob with its length before it, so that two blobs cannot be taken for others of the same
// bytes.
func addBlob(to []byte, blob string) []byte {
	return append(binary.BigEndian.AppendUint64(to, uint64(len(blob))), blob...)
}

// sameOutcome says whether an outcome of an activity is the one a hash was taken of, by this release or one before.
func sameOutcome(in *protocol.CompleteItem, stored, now string) bool {
	return stored == now || in.Failure == nil && stored == hashOf(in.Result.Blob)
}
