package broker

import (
	"cmp"
	"context"
	"strings"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// deploymentOutcomes are what the verbs on a deployment are answered with.
var deploymentOutcomes = map[string]string{
	protocol.BuildPromote: "promoted", protocol.BuildDrain: "drained", protocol.BuildResume: "resumed",
	protocol.BuildRollback: "rolled_back",
}

// Deployments lists the builds of the queues of a namespace, or of one queue, each under one name.
func (b *Broker) Deployments(ctx context.Context, ns, queue string) (protocol.DeploymentList, error) {
	ns = change.Namespace(ns)
	l := protocol.DeploymentList{Namespace: ns, Deployments: []protocol.Deployment{}}
	g, err := b.queueSnapshot(ctx, ns)
	if err != nil {
		return l, err
	}
	for _, name := range g.names() {
		if queue != "" && name != queue {
			continue
		}
		for _, c := range g.cohorts(name) {
			l.Deployments = append(l.Deployments, protocol.Deployment{
				Name: protocol.DeploymentName(ns, name, text(c.BuildID)), Namespace: ns, Queue: name, BuildCohort: c,
			})
		}
	}
	return l, nil
}

// Deployment shows one build of a queue.
func (b *Broker) Deployment(ctx context.Context, name string) (protocol.Deployment, error) {
	in, err := ParseDeployment(name)
	if err != nil {
		return protocol.Deployment{}, err
	}
	l, err := b.Deployments(ctx, in.Namespace, in.Queue)
	for _, d := range l.Deployments {
		if text(d.BuildID) == text(in.BuildID) {
			return d, err
		}
	}
	return protocol.Deployment{}, cmp.Or[error](err, protocol.Refuse(protocol.ReasonDeploymentNotFound,
		"no worker registered as deployment %s, and nothing was decided about it", name).With("name", name))
}

// DecideDeployment promotes, drains, resumes or rolls back a deployment. Like its queue it need not have been seen yet.
func (b *Broker) DecideDeployment(ctx context.Context, name, verb, identity string) (protocol.DeploymentState, error) {
	in, err := ParseDeployment(name)
	if err != nil {
		return protocol.DeploymentState{}, err
	}
	in.Verb, in.Identity = verb, identity
	s, err := b.DecideBuild(ctx, in)
	if err != nil {
		return protocol.DeploymentState{}, err
	}
	out := protocol.DeploymentState{Name: name, Outcome: deploymentOutcomes[verb], BuildState: s}
	q := b.store.Queue(engine.QueueKey{Namespace: in.Namespace, Name: in.Queue})
	if id := q.NewRuns(); id != "" {
		selected := protocol.DeploymentName(in.Namespace, in.Queue, id)
		out.NewRuns = &selected
	}
	return out, nil
}

// ParseDeployment takes the name of a deployment apart: NAMESPACE/QUEUE@BUILD, or …@unversioned for workers without a
// build id.
func ParseDeployment(name string) (protocol.BuildRequest, error) {
	ns, rest, slash := strings.Cut(name, "/")
	at := strings.LastIndexByte(rest, '@')
	if !slash || ns == "" || at < 1 || at == len(rest)-1 {
		return protocol.BuildRequest{}, protocol.Invalid(
			"deployment", "must be NAMESPACE/QUEUE@BUILD, or end in @%s", protocol.Unversioned,
		)
	}
	in := protocol.BuildRequest{Namespace: ns, Queue: rest[:at]}
	if build := rest[at+1:]; build != protocol.Unversioned {
		in.BuildID = &build
	}
	return in, nil
}
