package protocol

import (
	"net"
	"net/url"
	"regexp"

	"github.com/sojourn-run/sojourn/shared/history"
)

// maxNamespace is the longest name of a namespace, in bytes.
const maxNamespace = 128

// The pattern does not check the length: a pattern with a repetition of a hundred slows down the program's start.
var namespaceName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// CheckNamespace rejects an invalid namespace name; field is its path.
func CheckNamespace(field, name string) error {
	if len(name) > maxNamespace || !namespaceName.MatchString(name) {
		return Invalid(field, "must be 1 to %d of lower-case letters, digits and . _ -", maxNamespace)
	}
	return nil
}

// NamespaceRequest creates or changes a namespace. Absent members keep their values.
type NamespaceRequest struct {
	Name          string  `json:"name" pattern:"^[a-z0-9][a-z0-9._-]{0,127}$"`
	Description   *string `json:"description,omitempty" maxLength:"1000"`
	RetentionDays *int    `json:"retention_days,omitempty" minimum:"1" maximum:"365"` // days; default 30
	// Quotas override the quotas of the settings; -1 removes an override.
	Quotas *QuotaValues `json:"quotas,omitempty"`
	// CodecEndpoint is the URL of the service that decodes payloads for viewers; empty: none. Browsers and the command
	// line call it directly, the app does not. It has https or a loopback host, and a path.
	CodecEndpoint *string `json:"codec_endpoint,omitempty" maxLength:"1000"`
}

// The pattern admits no character with a meaning in a content security policy. A source of such a policy without a
// path, or with a path that ends with a slash, would allow other paths of the host, too.
var codecEndpoint = regexp.MustCompile(`^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// CheckCodecEndpoint rejects an invalid URL of a codec endpoint; empty is valid. field is its path.
func CheckCodecEndpoint(field, endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || !codecEndpoint.MatchString(endpoint) {
		return Invalid(field, "must be a URL with a path like https://codec.example.com/decode, without query and fragment")
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); u.Scheme != "https" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return Invalid(field, "must begin with https://, except for a loopback address")
	}
	return nil
}

// NamespaceView is a namespace in responses.
type NamespaceView struct {
	Name          string       `json:"name"`
	Description   string       `json:"description"`
	RetentionDays int          `json:"retention_days"`
	Status        string       `json:"status"` // active
	CreatedAt     history.Time `json:"created_at"`
	UpdatedAt     history.Time `json:"updated_at"`
	Quotas        []QuotaState `json:"quotas"`
	CodecEndpoint string       `json:"codec_endpoint"` // URL of the service that decodes payloads for viewers; empty: none
}

// NamespaceRemoval is the response to a removal, with the number of deleted objects by kind.
type NamespaceRemoval struct {
	Name    string         `json:"name"`
	Status  string         `json:"status"` // deleted
	Deleted map[string]int `json:"deleted"`
}
