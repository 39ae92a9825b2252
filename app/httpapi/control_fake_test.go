package httpapi_test

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (f *fake) HasNamespace(context.Context, string) error { return nil }

func (f *fake) Namespace(_ context.Context, name string) (protocol.NamespaceView, error) {
	return protocol.NamespaceView{Name: name}, f.saw(name)
}

func (f *fake) Namespaces(context.Context, func(string) bool) ([]protocol.NamespaceView, error) {
	return nil, f.saw("namespaces")
}

func (f *fake) CreateNamespace(_ context.Context, in protocol.NamespaceRequest) (protocol.NamespaceView, error) {
	return protocol.NamespaceView{Name: in.Name}, f.saw(in)
}

func (f *fake) UpdateNamespace(_ context.Context, in protocol.NamespaceRequest) (protocol.NamespaceView, error) {
	return protocol.NamespaceView{Name: in.Name}, f.saw(in)
}

func (f *fake) DeleteNamespace(_ context.Context, name string) (protocol.NamespaceRemoval, error) {
	return protocol.NamespaceRemoval{Name: name}, f.saw(name)
}
