package sqlite_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"gorm.io/gorm/schema"

	"github.com/sojourn-run/sojourn/app/store/internal/read"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// A model that lacks a column, or has one too many, would be noticed at the first listing of a production database.
func TestModelsHaveTheMigratedColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models.db")
	open(t, path, sqldb.Options{})
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for table, model := range read.Models() {
		parsed, err := schema.Parse(model, &sync.Map{}, schema.NamingStrategy{})
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Table != table {
			t.Errorf("model of %s reads %s", table, parsed.Table)
		}
		rows, err := db.QueryContext(t.Context(), "SELECT name, \"notnull\" FROM pragma_table_info(?)", table)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for rows.Next() {
			var name string
			var notNull bool
			if err := rows.Scan(&name, &notNull); err != nil {
				t.Fatal(err)
			}
			got = append(got, name)
			if f := parsed.LookUpField(name); f == nil {
				t.Errorf("%s.%s is in no model", table, name)
			} else if pointer := f.FieldType.Kind().String() == "ptr"; pointer == notNull {
				t.Errorf("%s.%s: not null %v, pointer %v", table, name, notNull, pointer)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		for _, name := range parsed.DBNames {
			if !slices.Contains(got, name) {
				t.Errorf("model of %s reads column %s, which is not there", table, name)
			}
		}
	}
}
