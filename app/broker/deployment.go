package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A deployment is the operators' view of a build: a build name and a queue. It is stored in the row of the queue. Both
// APIs for changes of a build use the same transaction, so neither can overwrite the other with stale data.

// deploymentOutcomes maps the actions on deployments to the outcomes in their responses.
var deploymentOutcomes = map[string]string{
	protocol.BuildPromote: "promoted", protocol.BuildDrain: "drained", protocol.BuildResume: "resumed",
	protocol.BuildRollback: "rolled_back",
}

// DecideDeployment promotes, drains, resumes or rolls back a deployment. No worker need have registered with the build
// or the queue.
func (b *Broker) DecideDeployment(ctx context.Context, name, verb, identity string) (protocol.DeploymentState, error) {
	in, err := protocol.ParseDeployment(name)
	if err != nil {
		return protocol.DeploymentState{}, err
	}
	in.Verb, in.Identity = verb, identity
	s, err := b.DecideBuild(ctx, in)
	if err != nil {
		return protocol.DeploymentState{}, err
	}
	out := protocol.DeploymentState{Name: name, Outcome: deploymentOutcomes[verb], BuildState: s}
	// Each action may change the build of new runs, so each response contains that build.
	q := b.store.Queue(engine.QueueKey{Namespace: in.Namespace, Name: in.Queue})
	if id := q.NewRuns(); id != "" {
		selected := protocol.DeploymentName(in.Namespace, in.Queue, id)
		out.NewRuns = &selected
	}
	return out, nil
}
