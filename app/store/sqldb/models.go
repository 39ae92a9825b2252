package sqldb

// The listings with many filters are built by gorm, everything else by hand. These are the tables that it reads, for
// the test that holds its models against the schema.

// Models are the rows that listings read through gorm, by table.
func Models() map[string]any {
	return map[string]any{runsTable.name: RunModel{}, sessionsTable.name: SessionModel{}, workersTable.name: WorkerModel{}}
}
