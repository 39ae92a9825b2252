package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A deployment is the operators' view of a build by name; the stored form is the row of a queue. Both APIs for
// decisions about a build use the same change, so neither can overwrite the other with stale data.

// deploymentOutcomes maps the verbs on deployments to the outcomes in their responses.
var deploymentOutcomes = map[string]string{
	protocol.BuildPromote: "promoted", protocol.BuildDrain: "drained", protocol.BuildResume: "resumed",
	protocol.BuildRollback: "rolled_back",
}

// DecideDeployment promotes, drains, resumes or rolls back a deployment. Like its queue it need not have been seen yet.
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
	// Each verb may change the build that new runs get, so each response contains this build.
	q := b.store.Queue(engine.QueueKey{Namespace: in.Namespace, Name: in.Queue})
	if id := q.NewRuns(); id != "" {
		selected := protocol.DeploymentName(in.Namespace, in.Queue, id)
		out.NewRuns = &selected
	}
	return out, nil
}
