package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
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

func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:12]) }

// hashOf tells outcomes apart by their JSON, so that a repeated one is known.
func hashOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	h := sha256.New()
	h.Write(raw)
	return sumOf(h)
}

// hashResult tells results apart.
func hashResult(blob string) string {
	h := sha256.New()
	addBlob(h, blob)
	return bytesMark + sumOf(h)
}

// hashCommands tells the commands of workflow tasks apart: what they say by its JSON, so that no member can be left
// out, and their payloads as they are.
func hashCommands(commands []protocol.Command) string {
	bare := slices.Clone(commands)
	for i := range bare {
		c := &bare[i]
		c.Arguments, c.Result, c.Entries = payload.Payload{}, payload.Payload{}, payload.Payload{}
	}
	raw, err := json.Marshal(bare)
	if err != nil {
		return ""
	}
	h := sha256.New()
	h.Write(raw)
	for i := range commands {
		addBlob(h, commands[i].Arguments.Blob)
		addBlob(h, commands[i].Result.Blob)
		addBlob(h, commands[i].Entries.Blob)
	}
	return bytesMark + sumOf(h)
}

// addBlob adds a blob with its length before it, so that two blobs cannot be taken for others of the same
// bytes.
func addBlob(h hash.Hash, blob string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(blob)))
	h.Write(length[:])
	h.Write([]byte(blob))
}

// sameOutcome says whether an outcome of an activity is the one a hash was taken of, by this release or one before.
func sameOutcome(in *protocol.CompleteItem, stored, now string) bool {
	return stored == now || in.Failure == nil && stored == hashOf(in.Result.Blob)
}
