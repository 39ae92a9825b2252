package httpapi

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A registered attribute has a type that later values must match. So registration needs an operator's role and an audit
// record, while every viewer may read the list.

// Attributes is the part of the broker for search attributes.
type Attributes interface {
	SearchAttributes(ctx context.Context, namespace string) (protocol.SearchAttributes, error)
	CreateSearchAttribute(
		ctx context.Context, namespace string, in protocol.SearchAttribute,
	) (protocol.SearchAttribute, error)
	DeleteSearchAttribute(ctx context.Context, namespace, name string) (protocol.SearchAttribute, error)
}

func attributeRoutes(contract lineFunc) []route {
	const all = "/search-attributes"
	return []route{
		contract(get, all, "list_search_attributes", auth.Viewer, listAttributes),
		audited("search_attribute.create", contract(post, all, "create_search_attribute", auth.Operator, createAttribute)),
		audited(
			"search_attribute.delete", contract(del, all+"/{name}", "delete_search_attribute", auth.Operator, deleteAttribute),
		),
	}
}

func listAttributes(a *API, c *call) (response, error) {
	return ok(a.opt.Attributes.SearchAttributes(c.Ctx, c.NS))
}

func createAttribute(a *API, c *call) (response, error) {
	var in protocol.SearchAttribute
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	c.about = in.Name
	out, err := a.opt.Attributes.CreateSearchAttribute(c.Ctx, c.NS, in)
	return response{http.StatusCreated, out}, err
}

func deleteAttribute(a *API, c *call) (response, error) {
	c.about = c.PathValue("name")
	return ok(a.opt.Attributes.DeleteSearchAttribute(c.Ctx, c.NS, c.PathValue("name")))
}
