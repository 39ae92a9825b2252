package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// NewerSchema checks that a store serves a database which a newer release has migrated, and changes nothing in its
// schema, if that release permits it. exec runs a statement in the database and number reads one number. newest is the
// schema that this binary knows.
func NewerSchema(
	t *testing.T, newest int64, open func() (store.Store, error), exec func(statement string),
	number func(query string) int64,
) {
	const versions = "SELECT count(*) FROM goose_db_version"
	open1 := func() {
		t.Helper()
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	migrated := func(version, minReader int64, release string) {
		exec(fmt.Sprintf("INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, true)", version))
		if release != "" {
			exec(fmt.Sprintf(
				"INSERT INTO schema_versions (version, release, min_reader) VALUES (%d, '%s', %d)", version, release, minReader,
			))
		}
	}
	refused := func(what string) {
		t.Helper()
		s, err := open()
		if !errors.Is(err, store.ErrSchema) {
			t.Errorf("%s: got %v, want store.ErrSchema", what, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
	open1()
	migrated(newest+1, newest, "99.1.0")
	before := number(versions)
	open1()
	if after := number(versions); after != before {
		t.Errorf("it was migrated: %d versions, then %d", before, after)
	}
	migrated(newest+2, newest, "99.2.0")
	refused("two releases ahead")
	exec(fmt.Sprintf(
		"UPDATE schema_versions SET release = '99.1.0', min_reader = %d WHERE version = %d", newest+1, newest+2,
	))
	refused("not new enough")
	exec(fmt.Sprintf("DELETE FROM schema_versions WHERE version = %d", newest+2))
	refused("one that does not say who may serve it")
	exec(fmt.Sprintf("DELETE FROM goose_db_version WHERE version_id = %d", newest+2))
	open1()
}

// Outgrown checks that an open store reports a migration to a schema that it may not serve, and reports no other
// migration. migrate makes the schema newer and sends the notice of a migration.
func Outgrown(t *testing.T, s store.Store, migrate func(minReader int64), newest int64) {
	migrate(newest)
	migrate(newest + 1)
	select {
	case err := <-s.Unusable():
		if !errors.Is(err, store.ErrSchema) {
			t.Errorf("got %v, want store.ErrSchema", err)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was told")
	}
}
