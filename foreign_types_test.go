package sojourn_test

import (
	"cmp"
	"fmt"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// A caller of the public API cannot import the internal packages, and the other packages may change at any time. The
// public packages may use each other's types.
func TestThePublicAPIMentionsNoForeignTypes(t *testing.T) {
	names := publicPackages
	if testing.Short() {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" || n == "workflowtest" })
	}
	for _, p := range typesOf(t, names) {
		for _, line := range mentions(p) {
			t.Errorf("mentions a type of a package without a compatibility promise: %s", line)
		}
	}
}

// mentions lists the exported identifiers of a package with the foreign types that they mention.
func mentions(p *types.Package) (all []string) {
	add := func(id string, t types.Type) {
		found := map[string]bool{}
		foreign(t, found, map[types.Type]bool{})
		for typ := range found {
			all = append(all, fmt.Sprintf("%s: %s mentions %s", cmp.Or(short(p.Path()), "sojourn"), id, typ))
		}
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		typ, ok := o.(*types.TypeName)
		if !ok {
			add(name, o.Type())
			continue
		}
		if typ.IsAlias() {
			add(name, types.Unalias(o.Type()))
			continue
		}
		if s, ok := o.Type().Underlying().(*types.Struct); ok {
			for _, f := range fieldsOf(s) {
				add(name+"."+f.Name(), f.Type())
			}
		} else if !types.IsInterface(o.Type()) {
			add(name, o.Type().Underlying())
		}
		if n, ok := o.Type().(*types.Named); ok {
			for param := range n.TypeParams().TypeParams() {
				add(name, param.Constraint())
			}
		}
		of := o.Type()
		if !types.IsInterface(of) {
			of = types.NewPointer(of)
		}
		for m := range types.NewMethodSet(of).Methods() {
			if m.Obj().Exported() {
				add(name+"."+m.Obj().Name(), m.Type())
			}
		}
	}
	slices.Sort(all)
	return all
}

// foreign collects the types of this module outside of the public packages that t mentions. An alias of a public
// package is reported where it is declared.
func foreign(t types.Type, found map[string]bool, seen map[types.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	named := func(o *types.TypeName, args *types.TypeList) {
		for a := range args.Types() {
			foreign(a, found, seen)
		}
		if o.Pkg() == nil || !ours(o.Pkg().Path()) {
			return
		}
		if name := short(o.Pkg().Path()); !o.Exported() || !slices.Contains(publicPackages, name) {
			found[strings.TrimPrefix(name+".", ".")+o.Name()] = true
		}
	}
	tuple := func(list *types.Tuple) {
		for v := range list.Variables() {
			foreign(v.Type(), found, seen)
		}
	}
	switch t := t.(type) {
	case *types.Alias:
		named(t.Obj(), t.TypeArgs())
	case *types.Named:
		named(t.Obj(), t.TypeArgs())
	case *types.Pointer:
		foreign(t.Elem(), found, seen)
	case *types.Slice:
		foreign(t.Elem(), found, seen)
	case *types.Array:
		foreign(t.Elem(), found, seen)
	case *types.Chan:
		foreign(t.Elem(), found, seen)
	case *types.Map:
		foreign(t.Key(), found, seen)
		foreign(t.Elem(), found, seen)
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			foreign(p.Constraint(), found, seen)
		}
		tuple(t.Params())
		tuple(t.Results())
	case *types.Struct:
		for f := range t.Fields() {
			foreign(f.Type(), found, seen)
		}
	case *types.Interface:
		for e := range t.EmbeddedTypes() {
			foreign(e, found, seen)
		}
		for m := range t.ExplicitMethods() {
			foreign(m.Type(), found, seen)
		}
	case *types.Union:
		for term := range t.Terms() {
			foreign(term.Type(), found, seen)
		}
	}
}
