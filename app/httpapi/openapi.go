package httpapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/docs"
	"github.com/sojourn-run/sojourn/shared/httpjson"
)

// The description is a file that was made when this release was built, and is held against its routes and types by
// tests; nothing is put together when somebody asks.

// describeAPI answers with the description of this API, as it was made of the routes and types of this build.
func describeAPI(a *API, c *call) (answer, error) {
	c.W.Header().Set(VersionHeader, Version)
	if err := httpjson.Write(c.W, c.Request, http.StatusOK, docs.OpenAPI); err != nil {
		a.opt.Log.Debug().Err(err).Str("operation", c.rt.Operation).Msg("the caller did not take the answer")
	}
	return answer{status: http.StatusOK}, nil
}
