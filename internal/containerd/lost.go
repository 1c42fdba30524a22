package containerd

import (
	"context"
	"slices"
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
	known, err := sandboxIDs(ctx, conn)
	if err != nil {
		return nil, err
	}
	unlisted := slices.DeleteFunc(slices.Clone(sandboxes), func(id string) bool { return known[id] })
	if len(unlisted) == 0 {
		return nil, nil
	}
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
