// Package docs is what of the documentation the binary carries.
package docs

import _ "embed"

// OpenAPI describes the HTTP API. It is generated: see app/openapi.
//
//go:embed openapi.json
var OpenAPI []byte
