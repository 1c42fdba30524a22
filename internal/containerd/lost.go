package containerd

import (
	"context"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Lost returns the ids of the given sandboxes that the runtime does not have and is
// not creating or removing now.
func (r *Runtime) Lost(ctx context.Context, sandboxes []string) ([]string, error) {
	if len(sandboxes) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, s := range answer.GetItems() {
		known[s.GetId()] = true
	}
	unlisted := slices.DeleteFunc(slices.Clone(sandboxes), func(id string) bool { return known[id] })
	if len(unlisted) == 0 {
		return nil, nil
	}
	// The list of the CRI has no sandbox that is being made or removed.
	// containerd holds a lease with the id of a sandbox from before it has
	// anything until nothing is left.
	held, err := (&leases{runtime: r}).list(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range held {
		known[l.id] = true
	}
	return slices.DeleteFunc(unlisted, func(id string) bool { return known[id] }), nil
}
