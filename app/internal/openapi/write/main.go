// Command write writes the generated OpenAPI document to a file.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/sojourn-run/sojourn/app/internal/openapi"
)

func main() {
	doc, err := openapi.Document("../../..", openapi.Routes())
	// An unchanged file is not written, since a write would rebuild the dashboard and everything that embeds the
	// document.
	if is, _ := os.ReadFile(os.Args[1]); err == nil && !bytes.Equal(is, doc) {
		err = os.WriteFile(os.Args[1], doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}
