package sqldb

// Models are the rows that listings read through gorm, by table.
func Models() map[string]any {
	return map[string]any{runsTable.name: RunModel{}, sessionsTable.name: SessionModel{}, workersTable.name: WorkerModel{}}
}
