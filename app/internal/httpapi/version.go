package httpapi

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A client of another version of the contract would misread answers rather than fail. So routes of the contract refuse
// a request that does not say its version, while our own routes, which no published client calls, do not ask.

// Version is the control plane's version, on every answer; requests of the contract's routes must say it.
const Version = protocol.ControlVersion

// VersionHeader names the control plane's version.
const VersionHeader = protocol.HeaderControlVersion

func checkVersion(said string) error {
	var e *protocol.Error
	switch said = strings.TrimSpace(said); said {
	case Version:
		return nil
	case "":
		e = protocol.Refuse(protocol.ReasonMissingControl, "the header %s is missing", VersionHeader).With(
			"requested_version", nil,
		)
	default:
		e = protocol.Refuse(protocol.ReasonUnsupportedControl, "control plane version %.40q is not supported", said).With(
			"requested_version", said,
		)
	}
	return e.With("supported_version", Version).With("remediation", "send "+VersionHeader+": "+Version)
}
