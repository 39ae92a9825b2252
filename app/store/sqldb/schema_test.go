package sqldb

import (
	"errors"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

func TestPreviousReleaseServesTheNextSchema(t *testing.T) {
	row := func(version int64, release string, minReader int64) noted { return noted{version, minReader, release} }
	for _, c := range []struct {
		name    string
		known   int64
		applied []int64
		rows    []noted
		want    string // expected refusal; empty: the database may be used
	}{
		{"its own", 12, nil, nil, ""},
		{"the next release", 12, []int64{13}, []noted{row(13, "0.2.0", 12)}, ""},
		{"several of the next release", 12, []int64{13, 14}, []noted{row(13, "0.2.0", 9), row(14, "0.2.0", 12)}, ""},
		{"more of its own release", 12, []int64{13, 14}, []noted{row(13, "0.1.0", 12), row(14, "0.2.0", 12)}, ""},
		{
			"too old for one of them", 12,
			[]int64{13, 14},
			[]noted{row(13, "0.2.0", 13), row(14, "0.2.0", 12)},
			"schema 13 needs a release with schema 13 or newer",
		},
		{
			"two releases ahead", 12,
			[]int64{13, 14},
			[]noted{row(13, "0.2.0", 12), row(14, "0.3.0", 12)},
			"one release ahead, not 2",
		},
		{
			"one that does not say", 12,
			[]int64{13, 14},
			[]noted{row(14, "0.2.0", 12)},
			"schema 13 does not record which releases may serve it",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := isSupported(c.known, "0.1.0", c.applied, c.rows)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			for _, both := range []string{"release 0.1.0 with schema 12", "of release 0."} {
				if !strings.Contains(err.Error(), both) {
					t.Errorf("%q does not contain %q", err, both)
				}
			}
		})
	}
}
