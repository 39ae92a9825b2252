package protocol

import (
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
}

// NamespaceRemoval is the response to a removal, with the number of deleted objects by kind.
type NamespaceRemoval struct {
	Name    string         `json:"name"`
	Status  string         `json:"status"` // deleted
	Deleted map[string]int `json:"deleted"`
}
