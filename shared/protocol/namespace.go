package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// NamespaceRequest creates or changes a namespace. What is absent in a change stays as it is.
type NamespaceRequest struct {
	Name          string  `json:"name" pattern:"^[a-z0-9][a-z0-9._-]{0,127}$"`
	Description   *string `json:"description,omitempty" maxLength:"1000"`
	RetentionDays *int    `json:"retention_days,omitempty" minimum:"1" maximum:"365"` // 30 when absent
}

// NamespaceView is a namespace as it is shown.
type NamespaceView struct {
	Name          string       `json:"name"`
	Description   string       `json:"description"`
	RetentionDays int          `json:"retention_days"`
	Status        string       `json:"status"` // active
	CreatedAt     history.Time `json:"created_at"`
	UpdatedAt     history.Time `json:"updated_at"`
}

// NamespaceRemoval is the answer to a removal: what went with the namespace, by kind.
type NamespaceRemoval struct {
	Name    string         `json:"name"`
	Status  string         `json:"status"` // deleted
	Deleted map[string]int `json:"deleted"`
}
