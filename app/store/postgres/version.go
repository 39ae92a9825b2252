package postgres

import (
	"context"
	"database/sql"
	"fmt"
)

// oldestVersion is the oldest PostgreSQL version that an app accepts; newer versions are tested.
const oldestVersion = 15

// checkServer returns an error for a server older than the oldest accepted version.
func checkServer(ctx context.Context, server *sql.DB) error {
	var version int // 150004 for version 15.4
	if err := server.QueryRowContext(ctx, "SHOW server_version_num").Scan(&version); err != nil {
		return fmt.Errorf("read the version of the server: %w", err)
	}
	if version/10_000 < oldestVersion {
		return fmt.Errorf("PostgreSQL %d or newer is required; the server is %d.%d", oldestVersion, version/10_000, version%10_000)
	}
	return nil
}
