package httpapi_test

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (f *fake) Queues(_ context.Context, in protocol.QueueList) (protocol.QueuePage, error) {
	return protocol.QueuePage{Namespace: in.Namespace}, f.saw(in)
}

func (f *fake) Queue(_ context.Context, namespace, name string) (protocol.QueueState, error) {
	return protocol.QueueState{Name: name, Namespace: namespace}, f.saw(name)
}

func (f *fake) QueueWaiting(_ context.Context, _, _ string) ([]protocol.TaskWhy, error) {
	return nil, nil
}

func (f *fake) BuildIDs(_ context.Context, namespace, queue string) (protocol.BuildRollout, error) {
	return protocol.BuildRollout{Namespace: namespace, Queue: queue}, f.saw(queue)
}

func (f *fake) Order(_ context.Context, namespace, queue string) (protocol.QueueOrder, error) {
	return protocol.QueueOrder{Namespace: namespace, Queue: queue}, f.saw(queue)
}

func (f *fake) DecideBuild(_ context.Context, in protocol.BuildRequest) (protocol.BuildState, error) {
	return protocol.BuildState{Queue: in.Queue, BuildID: in.BuildID}, f.saw(in)
}

func (f *fake) Routed(_ context.Context, namespace, queue string) (protocol.RouteState, error) {
	return protocol.RouteState{Namespace: namespace, Queue: queue}, f.saw(queue)
}

func (f *fake) Route(_ context.Context, in protocol.RouteRequest) (protocol.RouteState, error) {
	return protocol.RouteState{Namespace: in.Namespace, Queue: in.Queue, Group: in.Group}, f.saw(in)
}

func (f *fake) Limits(_ context.Context, namespace, queue string) (protocol.LimitState, error) {
	return protocol.LimitState{Namespace: namespace, Queue: queue}, f.saw(queue)
}

func (f *fake) Limit(_ context.Context, in protocol.LimitRequest) (protocol.LimitState, error) {
	return protocol.LimitState{Namespace: in.Namespace, Queue: in.Queue}, f.saw(in)
}

func (f *fake) Deployments(_ context.Context, namespace, queue string) (protocol.DeploymentList, error) {
	return protocol.DeploymentList{Namespace: namespace}, f.saw(queue)
}

func (f *fake) Deployment(_ context.Context, name string) (protocol.Deployment, error) {
	return protocol.Deployment{Name: name}, f.saw(name)
}

func (f *fake) DecideDeployment(_ context.Context, name, verb, _ string) (protocol.DeploymentState, error) {
	return protocol.DeploymentState{Name: name, Outcome: verb}, f.saw(name)
}
