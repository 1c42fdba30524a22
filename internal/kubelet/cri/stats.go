package cri

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// Stats returns the statistics of all containers by the UID of their pods.
func Stats(ctx context.Context, runtime internalapi.RuntimeService) (map[types.UID][]*runtimeapi.ContainerStats, error) {
	list, err := runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := map[types.UID][]*runtimeapi.ContainerStats{}
	for _, s := range list {
		uid := types.UID(s.GetAttributes().GetLabels()[kubelettypes.KubernetesPodUIDLabel])
		out[uid] = append(out[uid], s)
	}
	return out, nil
}
