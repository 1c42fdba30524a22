package csi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/amount"
)

// expansionNotRequired is an annotation of claims whose volumes the driver expands
// without the node.
const expansionNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// expansion is what a need remembers of the expansions of its volume.
type expansion struct {
	size    *resource.Quantity // of the volume on this node, nil before it is mounted
	inUse   bool               // the driver does not expand it while it is in use
	refused bool               // the driver has refused to expand it
}

func (m *mount) resizeStatus() v1.ClaimResourceStatus {
	return m.source.Claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
}

// recovers reports whether the controller that expands the volume writes its
// progress into the claim, and so can take an expansion back that fails.
func (m *mount) recovers() bool {
	s := &m.source.Claim.Status
	return len(s.AllocatedResourceStatuses) > 0 || len(s.AllocatedResources) > 0
}

// expands reports whether the node has to expand the volume, because its
// controller or another node has expanded it.
func (m *mount) expands() bool {
	claim, pv := m.source.Claim, m.source.PV
	if claim == nil || pv == nil || claim.Annotations[expansionNotRequired] == "true" {
		return false
	}
	var before expansion
	m.withNeed(func(n *need) { before = n.expansion })
	size := pv.Spec.Capacity[v1.ResourceStorage]
	switch {
	case before.inUse:
		return false
	case m.shown():
		return m.resizeStatus() == "" && slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany) && !m.source.readOnly() &&
			before.size != nil && before.size.Cmp(size) < 0
	case m.recovers():
		return slices.Contains([]v1.ClaimResourceStatus{v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress}, m.resizeStatus())
	}
	return true
}

// shown reports whether the claim has the size of the volume.
func (m *mount) shown() bool {
	has, size := m.source.Claim.Status.Capacity[v1.ResourceStorage], m.source.PV.Spec.Capacity[v1.ResourceStorage]
	return has.Cmp(size) >= 0
}

// expand makes the file system at path as large as the volume, and shows that in
// the claim.
func (m *mount) expand(ctx context.Context, path string) error {
	if path == "" || !m.expands() {
		return nil
	}
	pv := m.source.PV
	size := pv.Spec.Capacity[v1.ResourceStorage]
	expanded := func(n *need) { n.expansion.size = &size }
	if !m.capabilities[csipb.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		m.withNeed(expanded)
		return nil
	}
	if m.source.readOnly() {
		m.tell(v1.EventTypeWarning, "FileSystemResizeFailed", "MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", pv.Name)
		return nil
	}
	secrets, err := m.secrets(ctx, "NodeExpandSecretRef", pv.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return err
	}
	shown := m.shown() // by another node
	if !shown && m.recovers() && m.resizeStatus() != v1.PersistentVolumeClaimNodeResizeInProgress {
		if err := m.showStatus(ctx, v1.PersistentVolumeClaimNodeResizeInProgress); err != nil {
			return err
		}
	}
	err = callWhole(ctx, m.endpoint, func(ctx context.Context, node csipb.NodeClient) error {
		_, err := node.NodeExpandVolume(ctx, &csipb.NodeExpandVolumeRequest{
			VolumeId: m.record.Handle, VolumePath: m.endpoint.named(path), StagingTargetPath: m.endpoint.named(m.staging()), Secrets: secrets, VolumeCapability: m.capability(),
			CapacityRange: &csipb.CapacityRange{RequiredBytes: amount.Value(size)},
		})
		return err
	})
	if err != nil && (!shown || status.Code(err) != codes.Unimplemented) {
		return m.expansionFailed(ctx, err)
	}
	m.withNeed(expanded)
	if err != nil {
		return nil // The driver expands volumes without nodes.
	}
	if !shown {
		if err := m.showExpanded(ctx, size); err != nil {
			return err
		}
	}
	m.tell(v1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume %q %s", pv.Name, m.volumes.NodeName)
	return nil
}

// tell records an event of the pod, and of its claim.
func (m *mount) tell(kind, reason, format string, args ...any) {
	m.volumes.Recorder.Eventf(m.pod, kind, reason, format, args...)
	m.volumes.Recorder.Eventf(m.source.Claim, kind, reason, format, args...)
}

// expansionFailed shows that the driver has not expanded the volume. It returns
// nil if the pod can use the volume as it is.
func (m *mount) expansionFailed(ctx context.Context, failure error) error {
	claim := m.source.Claim
	m.volumes.Recorder.Eventf(claim, v1.EventTypeWarning, "VolumeResizeFailed", "NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", m.source.PV.Name, failure)
	if isFinal(failure) && m.recovers() {
		if err := m.showRefused(ctx, failure); err != nil {
			return errors.Join(failure, err)
		}
	}
	if status.Code(failure) == codes.FailedPrecondition {
		m.withNeed(func(n *need) { n.expansion.inUse = true })
		return nil
	}
	return failure
}

// showRefused shows in the claim that the driver has refused to expand the volume.
// If trying again is no use, its controller may then take the expansion back.
func (m *mount) showRefused(ctx context.Context, failure error) error {
	claim := m.source.Claim
	changed := map[string]any{}
	if !slices.ContainsFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError && c.Status == v1.ConditionTrue
	}) {
		changed["conditions"] = []v1.PersistentVolumeClaimCondition{{
			Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
			Message: "failed to expand pvc with " + failure.Error(),
		}}
	}
	// Whoever has changed the claim since wants another size.
	asked, size := claim.Spec.Resources.Requests[v1.ResourceStorage], m.source.PV.Spec.Capacity[v1.ResourceStorage]
	infeasible := slices.Contains([]codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.NotFound}, status.Code(failure))
	m.withNeed(func(n *need) {
		infeasible = infeasible || n.expansion.refused && asked.Cmp(size) != 0
		n.expansion.refused = true
	})
	if infeasible {
		changed["allocatedResourceStatuses"] = resizeStatuses(v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	if len(changed) == 0 {
		return nil
	}
	// Conditions are merged, and the claim may have changed meanwhile.
	return m.patchClaim(ctx, types.StrategicMergePatchType, map[string]any{"uid": claim.UID}, changed)
}

func resizeStatuses(s v1.ClaimResourceStatus) map[v1.ResourceName]any {
	return map[v1.ResourceName]any{v1.ResourceStorage: s}
}

// showStatus writes the state of the expansion into the status of the claim.
func (m *mount) showStatus(ctx context.Context, s v1.ClaimResourceStatus) error {
	return m.patchClaim(ctx, types.MergePatchType, m.sameClaim(), map[string]any{"allocatedResourceStatuses": resizeStatuses(s)})
}

// showExpanded writes the new size into the status of the claim and removes what
// said that it is being resized.
func (m *mount) showExpanded(ctx context.Context, size resource.Quantity) error {
	conditions := slices.DeleteFunc(slices.Clone(m.source.Claim.Status.Conditions), func(c v1.PersistentVolumeClaimCondition) bool {
		return slices.Contains([]v1.PersistentVolumeClaimConditionType{
			v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
			v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
		}, c.Type)
	})
	if conditions == nil {
		conditions = []v1.PersistentVolumeClaimCondition{}
	}
	return m.patchClaim(ctx, types.MergePatchType, m.sameClaim(), map[string]any{
		"capacity":                  map[v1.ResourceName]string{v1.ResourceStorage: size.String()},
		"conditions":                conditions,
		"allocatedResourceStatuses": map[v1.ResourceName]any{v1.ResourceStorage: nil},
	})
}

// sameClaim makes a patch fail if the claim has changed.
func (m *mount) sameClaim() map[string]any {
	return map[string]any{"uid": m.source.Claim.UID, "resourceVersion": m.source.Claim.ResourceVersion}
}

// patchClaim changes the status of the claim.
func (m *mount) patchClaim(ctx context.Context, kind types.PatchType, metadata, changed map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "status": changed})
	if err != nil {
		return err
	}
	claim := m.source.Claim
	next, err := m.volumes.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, kind, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	m.source.Claim = next
	return nil
}
