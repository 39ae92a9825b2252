// Package web embeds and serves the dashboard.
package web

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
)

// dist is what "npm run build" made. Without Node it holds only .gitkeep, which is committed so that this line
// compiles.
//
//go:embed all:dist
var dist embed.FS

//go:embed fallback/index.html
var fallback []byte

// Handler serves the dashboard: its files by name, and index.html for every other path, because the page's routes exist
// only in the browser. It accepts only GET and HEAD. A binary built without the dashboard serves one page that explains
// how to build it. Mount the API on longer paths.
//
// connections returns the URLs to which the page may connect besides its own origin: the codec endpoints. It is called
// for each request for the page; nil: none.
func Handler(connections func(context.Context) []string) http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is a constant
	}
	return serve(files, connections)
}

// Built reports whether the binary contains the dashboard.
func Built() bool {
	_, err := fs.Stat(dist, "dist/index.html")
	return err == nil
}
