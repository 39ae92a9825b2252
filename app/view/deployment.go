package view

import (
	"cmp"
	"context"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A deployment is a build of a task queue, under the name that the contract uses. Deployments are not stored, since a
// stored list could differ from the queues.

// Deployments lists the builds of the task queues of a namespace, or of one queue, one deployment per name.
func (v *View) Deployments(ctx context.Context, ns, queue string) (protocol.DeploymentList, error) {
	ns = transaction.NamespaceOrDefault(ns)
	l := protocol.DeploymentList{Namespace: ns, Deployments: []protocol.Deployment{}}
	g, err := v.queueServers(ctx, ns)
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

// Deployment returns one build of a queue.
func (v *View) Deployment(ctx context.Context, name string) (protocol.Deployment, error) {
	in, err := protocol.ParseDeployment(name)
	if err != nil {
		return protocol.Deployment{}, err
	}
	l, err := v.Deployments(ctx, in.Namespace, in.Queue)
	// A queue has few builds, so a search of the list is fast enough.
	for _, d := range l.Deployments {
		if text(d.BuildID) == text(in.BuildID) {
			return d, err
		}
	}
	return protocol.Deployment{}, cmp.Or[error](err, protocol.Refuse(protocol.ReasonDeploymentNotFound,
		"deployment %s not found: no worker has registered it and it has no settings", name).With("name", name))
}
