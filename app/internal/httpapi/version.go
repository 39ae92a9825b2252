package httpapi

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A client of another version of the contract might misread responses. So routes of the contract reject a request
// without a supported version; Sojourn's own routes, which no published client calls, need no version.

// Version is the version of the control plane API. Every response contains it, and requests to the contract's routes
// must send it.
const Version = protocol.ControlVersion

// VersionHeader names the control plane's version.
const VersionHeader = protocol.HeaderControlVersion

func checkVersion(version string) error {
	var e *protocol.Error
	switch version = strings.TrimSpace(version); version {
	case Version:
		return nil
	case "":
		e = protocol.Refuse(protocol.ReasonMissingControl, "the header %s is missing", VersionHeader).With(
			"requested_version", nil,
		)
	default:
		e = protocol.Refuse(protocol.ReasonUnsupportedControl, "control plane version %.40q is not supported", version).With(
			"requested_version", version,
		)
	}
	return e.With("supported_version", Version).With("remediation", "send "+VersionHeader+": "+Version)
}
