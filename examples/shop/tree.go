package shop

import "github.com/sojourn-run/sojourn/worker/workflow"

// Category is a category of the catalogue, with its number of products and its parts.
type Category struct {
	Products int
	Parts    []Category
}

// Count returns the number of products of a category. Each part is counted by a child, which may run at another worker.
func Count(ctx workflow.Context, c Category) (int, error) {
	var children []*workflow.Child
	for _, part := range c.Parts {
		children = append(children, workflow.StartChild(ctx, "count", part))
	}
	sum := c.Products
	for _, child := range children {
		n := 0
		if err := child.Get(ctx, &n); err != nil {
			return 0, err // the other children are cancelled with this run
		}
		sum += n
	}
	return sum, nil
}
