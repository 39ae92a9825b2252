package workerapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker that declares a capability which its protocol version does not have would get tasks that it misreads. The
// app rejects its registration, where an operator sees the error, instead of the first such task.

// affinity lists the capabilities that a worker of protocol 1.18 or later declares twice: as words, and in its manifest
// with the version that each needs.
var affinity = []string{"local_activities", "worker_sessions", "sticky_execution"}

const affinitySince = 18

// since lists the minor version of the protocol that added each capability; a worker with an earlier version cannot use
// it.
var since = []struct {
	capability string
	minor      int
	reason     protocol.Reason
}{
	{"memo_upserts", 14, protocol.ReasonCapabilityVersion},
	{"typed_search_attributes", 16, protocol.ReasonCapabilityVersion},
	{"message_streams", 15, protocol.ReasonStreamsUnavailable},
}

// checkCapabilities rejects a registration that is inconsistent or declares capabilities that its protocol version does
// not have. The manifest is optional.
func checkCapabilities(version string, in protocol.RegisterRequest) error {
	version = strings.TrimSpace(version)
	at := minorOf(version)
	refuse := func(reason protocol.Reason, capability string, least int, remedy string) error {
		return protocol.Refuse(reason, "capability %s: %s", capability, remedy).With("capability", capability).
			With("requested_version", version).With("minimum_protocol_version", "1."+strconv.Itoa(least)).With(
			"remediation", remedy,
		)
	}
	if raw := bytes.TrimSpace(in.Manifest); at >= affinitySince && len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		entries, err := manifestOf(raw)
		if err != nil {
			return err
		}
		for _, name := range affinity {
			e, declared := entries[name], slices.Contains(in.Capabilities, name)
			if *e.Supported != declared {
				return refuse(protocol.ReasonManifestMismatch, name, affinitySince,
					"list it in capabilities if, and only if, capability_manifest marks it as supported")
			}
			if least := minorOf(e.Minimum); least < affinitySince || declared && at < least {
				return refuse(
					protocol.ReasonManifestFloor, name, max(least, affinitySince),
					"offer it only with a protocol version that supports it",
				)
			}
		}
	}
	for _, s := range since {
		if at < s.minor && slices.Contains(in.Capabilities, s.capability) {
			return refuse(s.reason, s.capability, s.minor, "offer it only with protocol 1."+strconv.Itoa(s.minor)+" or later")
		}
	}
	return nil
}

// manifestEntry is one capability in a worker's manifest; other members are ignored.
type manifestEntry struct {
	Supported *bool  `json:"supported"`
	Minimum   string `json:"minimum_protocol_version"`
}

func manifestOf(raw []byte) (map[string]manifestEntry, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil, protocol.Invalid("capability_manifest", "must be an object")
	}
	entries := make(map[string]manifestEntry, len(affinity))
	for _, name := range affinity {
		var e manifestEntry
		field := "capability_manifest." + name
		switch err := json.Unmarshal(members[name], &e); {
		case members[name] == nil:
			return nil, protocol.Invalid(field, "is missing")
		case err != nil || e.Supported == nil || e.Minimum == "":
			return nil, protocol.Invalid(
				field, "must have supported (true or false) and minimum_protocol_version (such as 1.18)",
			)
		}
		entries[name] = e
	}
	return entries, nil
}

// minorOf returns the minor part of a version with this app's major version; 0 for any other text.
func minorOf(version string) int {
	m, n, _ := strings.Cut(strings.TrimSpace(version), ".")
	minor, err := strconv.Atoi(n)
	if err != nil || m != strconv.Itoa(major) {
		return 0
	}
	return minor
}
