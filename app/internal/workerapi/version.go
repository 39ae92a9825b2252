package workerapi

import (
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Workers with an older minor version are served, since versions only add. Workers with a newer version, or without
// one, are rejected with the supported version, as they might use missing features.

// Version is the worker protocol version in every response; requests of versions 1.0 up to it are accepted.
const Version = protocol.WorkerVersion

const major, minor = 1, 20

// VersionHeader is the header with the protocol version of a request or a response.
const VersionHeader = protocol.HeaderWorkerVersion

func checkVersion(version string) error {
	version = strings.TrimSpace(version)
	if version == "" {
		return versionError(protocol.ReasonMissingVersion, nil, "the header %s is missing", VersionHeader)
	}
	m, n, ok := strings.Cut(version, ".")
	have, err := strconv.ParseUint(m, 10, 16)
	at, minorErr := strconv.ParseUint(n, 10, 16)
	if !ok || err != nil || minorErr != nil || have != major || at > minor {
		return versionError(protocol.ReasonUnsupportedVersion, version, "worker protocol %.40q is not supported", version)
	}
	return nil
}

func versionError(r protocol.Reason, requested any, format string, args ...any) error {
	return protocol.Refuse(r, format, args...).With("supported_version", Version).With("requested_version", requested).
		With("remediation", "send "+VersionHeader+": "+Version)
}
