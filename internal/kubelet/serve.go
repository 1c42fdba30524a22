package kubelet

import "context"

type serverStub struct{}

func (serverStub) Run(ctx context.Context) {}

func (k *Kubelet) newServer(ctx context.Context) (serverStub, error) { return serverStub{}, nil }
