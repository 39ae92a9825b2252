package apptest

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// Route is a route of an app's HTTP APIs.
type Route = serve.Route

// Routes returns the routes of the control plane and of the worker protocol.
func Routes() []Route { return append(httpapi.Routes(), workerapi.Routes()...) }

// SetVersions sets the version headers that the control plane and the worker protocol require.
func SetVersions(h http.Header) {
	h.Set(httpapi.VersionHeader, httpapi.Version)
	h.Set(workerapi.VersionHeader, workerapi.Version)
}
