// Command write writes the description of the HTTP API to the file it is given; go generate runs it in the directory of
// package openapi.
package main

import (
	"fmt"
	"os"

	"github.com/sojourn-run/sojourn/internal/openapi"
)

func main() {
	doc, err := openapi.Document("../..", openapi.Routes())
	if err == nil {
		err = os.WriteFile(os.Args[1], doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}
