package workflowtest

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Recorded returns the recorded history of the run, for tests of Replay.
func (w *Workflow) Recorded() []history.Event { return w.env.events(w.RunID) }

// Recorded returns the recorded histories of all runs, for tests of what is stored.
func (e *Env) Recorded() [][]history.Event { return e.histories() }

// CheckSettings returns the error with which RunWith rejects settings.
func CheckSettings(settings map[string]string) error {
	_, err := loadSettings(settings)
	return err
}

// Operate drains or resumes a worker for an operator.
func (e *Env) Operate(verb, worker string) error {
	_, err := e.server.Broker().Fleet().OperateFleet(e.ctx, protocol.FleetRequest{
		FleetTarget: protocol.FleetTarget{WorkerID: worker}, Verb: verb,
	})
	return err
}
