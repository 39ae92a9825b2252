// Package docs embeds the documents that the binary serves.
package docs

import "embed"

// OpenAPI describes the HTTP API. It is generated: see app/internal/openapi.
//
//go:embed openapi.json
var OpenAPI []byte

// SessionSchema is the JSON Schema of the worker-session contract.
//
//go:embed schemas/worker-sessions-runtime.schema.json
var SessionSchema []byte

// Conformance holds the cases of the conformance kit, in the directory conformance.
//
//go:embed conformance/*.json
var Conformance embed.FS
