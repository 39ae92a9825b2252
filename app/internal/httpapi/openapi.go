package httpapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/internal/httpjson"
)

// document serves a file of the documentation that is embedded in the binary.
func document(raw []byte) func(a *API, c *call) (response, error) {
	return func(a *API, c *call) (response, error) {
		c.W.Header().Set(VersionHeader, Version)
		if err := httpjson.Write(c.W, c.Request, http.StatusOK, raw); err != nil {
			a.opt.Log.Debug().Err(err).Str("operation", c.rt.Operation).Msg("failed to write a response")
		}
		return response{status: http.StatusOK}, nil
	}
}
