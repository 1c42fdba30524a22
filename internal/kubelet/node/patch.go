package node

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patchStatus writes the difference between two statuses and returns the new Node
// object. PatchNodeStatus of component-helpers takes no context and hides the
// type of an error.
func (r *Reporter) patchStatus(ctx context.Context, before, after *v1.NodeStatus) (*v1.Node, error) {
	patch, err := statusPatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("make the patch of the status of node %s: %w", r.config.Name, err)
	}
	written, err := r.config.Client.Kubernetes.CoreV1().Nodes().Patch(ctx, r.config.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("patch the status of node %s: %w", r.config.Name, err)
	}
	return written, nil
}

// statusPatch returns the strategic merge patch from one status to another. It
// replaces the addresses as a whole: their merge key is the type, and a node may
// have several addresses of one type.
func statusPatch(before, after *v1.NodeStatus) ([]byte, error) {
	from, to := v1.Node{Status: *before}, v1.Node{Status: *after}
	from.Status.Addresses, to.Status.Addresses = nil, nil
	old, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	changed, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	raw, err := strategicpatch.CreateTwoWayMergePatch(old, changed, v1.Node{})
	if err != nil || equality.Semantic.DeepEqual(before.Addresses, after.Addresses) {
		return raw, err
	}
	patch := map[string]map[string]any{}
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, err
	}
	if patch["status"] == nil {
		patch["status"] = map[string]any{}
	}
	addresses := []any{}
	for _, a := range after.Addresses {
		addresses = append(addresses, a)
	}
	patch["status"]["addresses"] = append(addresses, map[string]string{"$patch": "replace"})
	return json.Marshal(patch)
}
