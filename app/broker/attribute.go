package broker

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A namespace may register search attributes with types. The app then rejects values of other types when an attribute
// is set, so that a filter by this attribute does not silently miss runs.

var registeredName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)

// SearchAttributes lists the attributes by which the runs of a namespace can be filtered, with their types: system
// attributes and registered ones.
func (b *Broker) SearchAttributes(ctx context.Context, ns string) (protocol.SearchAttributes, error) {
	types, err := b.AttributeTypes(ctx, transaction.NamespaceOrDefault(ns))
	if types == nil {
		types = map[string]string{}
	}
	return protocol.SearchAttributes{System: engine.SystemAttributes, Custom: types}, err
}

// CreateSearchAttribute registers an attribute name with a type. Runs keep their values; from now on values of other
// types are rejected.
func (b *Broker) CreateSearchAttribute(
	ctx context.Context, ns string, in protocol.SearchAttribute,
) (protocol.SearchAttribute, error) {
	switch _, system := engine.SystemAttributes[in.Name]; {
	case len(in.Name) > protocol.MaxAttributeName, !registeredName.MatchString(in.Name):
		return in, protocol.Invalid(
			"name", "must be 1 to %d letters, digits or _, and begin with a letter", protocol.MaxAttributeName,
		)
	case !slices.Contains(engine.RegisteredTypes, in.Type):
		return in, protocol.Invalid("type", "must be one of %v, not %q", engine.RegisteredTypes, in.Type)
	case system:
		return in, protocol.Refuse(protocol.ReasonAttributeReserved, "%s is a system attribute; choose another name", in.Name).
			With("name", in.Name)
	}
	in.Outcome = "created"
	return in, b.changeAttributes(ctx, ns, func(types map[string]string) error {
		if typ, taken := types[in.Name]; taken {
			return protocol.Refuse(protocol.ReasonAttributeExists, "search attribute %s is already registered with type %s", in.Name, typ).
				With("name", in.Name).With("type", typ)
		}
		if len(types) >= protocol.MaxAttributes {
			return protocol.Refuse(
				protocol.ReasonAttributeLimit, "the namespace has %d search attributes, which is the maximum", len(types),
			).With("limit", protocol.MaxAttributes)
		}
		types[in.Name] = in.Type
		return nil
	})
}

// DeleteSearchAttribute deletes a registration. Runs keep their values, and may then set values of any type.
func (b *Broker) DeleteSearchAttribute(ctx context.Context, ns, name string) (protocol.SearchAttribute, error) {
	out := protocol.SearchAttribute{Name: name, Outcome: "deleted"}
	if _, system := engine.SystemAttributes[name]; system {
		return out, protocol.Refuse(protocol.ReasonAttributeSystem, "system attribute %s cannot be removed", name).
			With("name", name)
	}
	return out, b.changeAttributes(ctx, ns, func(types map[string]string) error {
		if _, there := types[name]; !there {
			return protocol.Refuse(protocol.ReasonAttributeNotFound, "no search attribute %s is registered", name).
				With("name", name)
		}
		delete(types, name)
		return nil
	})
}

// changeAttributes changes the registered attributes of a namespace.
func (b *Broker) changeAttributes(ctx context.Context, ns string, edit func(types map[string]string) error) error {
	ns = transaction.NamespaceOrDefault(ns)
	_, err := b.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Namespaces: []string{ns}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			had := rows.Namespace(ns)
			if had == nil || had.Leaving {
				return store.Writes{}, namespaceNotFound(ns)
			}
			n, types := *had, maps.Clone(had.SearchAttributes)
			if types == nil {
				types = map[string]string{}
			}
			if err := edit(types); err != nil {
				return store.Writes{}, err
			}
			n.SearchAttributes, n.UpdatedAt = types, history.At(now)
			return store.Writes{Namespaces: []store.Namespace{n}}, nil
		},
	})
	// Invalidate the cache also after an error, because the commit may have succeeded.
	b.namespaces.invalidate(ns)
	return err
}

// AttributeTypes returns the registered search attributes of a namespace with their types. An app that is alone on its
// database caches them; one of several apps reads them each time, since another app may have changed them.
func (b *Broker) AttributeTypes(ctx context.Context, ns string) (map[string]string, error) {
	known, at := b.namespaces.attributes(ns)
	// On a shared database another app may have changed the attributes since: with stale types, history would store a
	// value of a wrong type.
	if known != nil && !b.opt.Shared {
		return known, nil
	}
	var n store.Namespace
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		n, err = r.Namespace(ctx, ns)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, namespaceNotFound(ns)
	}
	if err == nil {
		b.namespaces.cacheTypes(ns, n.SearchAttributes, at)
	}
	return n.SearchAttributes, err
}

// checkTypes refuses search attributes whose types differ from the types that their namespace registered.
func (b *Broker) checkTypes(ctx context.Context, ns, field string, given json.RawMessage) error {
	if len(given) == 0 || string(given) == "null" {
		return nil
	}
	types, err := b.AttributeTypes(ctx, ns)
	if err != nil {
		return err
	}
	return engine.CheckTypes(given, types, func(name string) string { return field + "." + name })
}

// upsertTypes returns the registered types if a command sets search attributes. Most completions set none and need no
// lookup.
func (b *Broker) upsertTypes(ctx context.Context, ns string, commands []protocol.Command) (map[string]string, error) {
	if !engine.Labels(commands) {
		return nil, nil
	}
	return b.AttributeTypes(ctx, ns)
}

// attributes returns the cached attributes of a namespace (nil if they are not cached) and the number of changes so
// far, which the caller passes to cacheTypes.
func (n *namespaces) attributes(name string) (types map[string]string, at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.types[name], n.changes
}

// cacheTypes caches attributes that were read after the given number of changes; see attributes.
func (n *namespaces) cacheTypes(name string, types map[string]string, at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// A read that began before a change of the attributes may end after it. Its result must not be cached, because it
	// would be used until this app stops.
	if n.changes != at {
		return
	}
	if n.types == nil || len(n.types) >= maxCachedNamespaces {
		n.types = map[string]map[string]string{}
	}
	if types == nil {
		types = map[string]string{}
	}
	n.types[name] = types
}

// invalidate removes the cached attributes of a namespace after a change.
func (n *namespaces) invalidate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.types, name)
	n.changes++
}
