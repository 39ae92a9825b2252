package postgres

import "github.com/jackc/pgx/v5/pgtype"

// The columns of a statement's rows are its parameters, as arrays. The driver takes the elements of an array as
// values in interfaces, each a copy in memory of its own, unless they are pointers: so here they are.

type (
	texts  []string
	bigs   []int64
	textIn string
	bigIn  int64
)

func (t *textIn) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

func (b *bigIn) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*b), Valid: true}, nil
}

func (t texts) Index(i int) any                     { return (*textIn)(&t[i]) }
func (t texts) IndexType() any                      { return new(textIn) }
func (t texts) Dimensions() []pgtype.ArrayDimension { return dimensions(len(t), t == nil) }
func (b bigs) Index(i int) any                      { return (*bigIn)(&b[i]) }
func (b bigs) IndexType() any                       { return new(bigIn) }
func (b bigs) Dimensions() []pgtype.ArrayDimension  { return dimensions(len(b), b == nil) }

func dimensions(n int, null bool) []pgtype.ArrayDimension {
	if null {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}

// arrays has the arguments of a call that are arrays sent as such.
func arrays(args []any) []any {
	for i, a := range args {
		switch a := a.(type) {
		case []string:
			args[i] = texts(a)
		case []int64:
			args[i] = bigs(a)
		}
	}
	return args
}
