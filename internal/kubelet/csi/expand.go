package csi

import (
	"context"
	"encoding/json"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/amount"
)

// expansionNotRequired is an annotation of claims whose volumes the driver expands
// without the node.
const expansionNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// expands reports whether the volume is larger than its claim says, because its
// controller has expanded it, and the node has to expand it, too.
func (m *mount) expands() bool {
	claim, pv := m.source.Claim, m.source.PV
	if claim == nil || pv == nil || claim.Annotations[expansionNotRequired] == "true" {
		return false
	}
	size, has := pv.Spec.Capacity[v1.ResourceStorage], claim.Status.Capacity[v1.ResourceStorage]
	return size.Cmp(has) > 0
}

// expand makes the file system at path as large as the volume, and shows that in
// the claim.
func (m *mount) expand(ctx context.Context, path string) error {
	if path == "" || !m.expands() || !m.capabilities[csipb.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return nil
	}
	claim, pv := m.source.Claim, m.source.PV
	size := pv.Spec.Capacity[v1.ResourceStorage]
	if m.source.readOnly() {
		m.volumes.Recorder.Eventf(m.pod, v1.EventTypeWarning, "VolumeResizeFailed", "NodeExpandVolume.NodeExpandVolume failed for volume %q : requested read-only file system", pv.Name)
		return nil
	}
	secrets, err := m.secrets(ctx, "NodeExpandSecretRef", pv.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return err
	}
	err = call(ctx, m.endpoint, func(ctx context.Context, node csipb.NodeClient) error {
		_, err := node.NodeExpandVolume(ctx, &csipb.NodeExpandVolumeRequest{
			VolumeId: m.record.Handle, VolumePath: path, StagingTargetPath: m.staging(), Secrets: secrets, VolumeCapability: m.capability(),
			CapacityRange: &csipb.CapacityRange{RequiredBytes: amount.Value(size)},
		})
		return err
	})
	if err != nil {
		m.volumes.Recorder.Eventf(claim, v1.EventTypeWarning, "VolumeResizeFailed", "NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err)
		return err
	}
	if err := m.showExpanded(ctx, claim, size); err != nil {
		return err
	}
	const done = "MountVolume.NodeExpandVolume succeeded for volume %q %s"
	m.volumes.Recorder.Eventf(m.pod, v1.EventTypeNormal, "FileSystemResizeSuccessful", done, pv.Name, m.volumes.NodeName)
	m.volumes.Recorder.Eventf(claim, v1.EventTypeNormal, "FileSystemResizeSuccessful", done, pv.Name, m.volumes.NodeName)
	return nil
}

// showExpanded writes the new size into the status of the claim and removes what
// said that it is being resized.
func (m *mount) showExpanded(ctx context.Context, claim *v1.PersistentVolumeClaim, size resource.Quantity) error {
	conditions := slices.DeleteFunc(slices.Clone(claim.Status.Conditions), func(c v1.PersistentVolumeClaimCondition) bool {
		return slices.Contains([]v1.PersistentVolumeClaimConditionType{
			v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
			v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
		}, c.Type)
	})
	if conditions == nil {
		conditions = []v1.PersistentVolumeClaimCondition{}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion},
		"status": map[string]any{
			"capacity":                  map[v1.ResourceName]string{v1.ResourceStorage: size.String()},
			"conditions":                conditions,
			"allocatedResourceStatuses": map[v1.ResourceName]any{v1.ResourceStorage: nil},
		},
	})
	if err != nil {
		return err
	}
	_, err = m.volumes.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
