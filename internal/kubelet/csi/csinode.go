package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiretry "k8s.io/client-go/util/retry"
)

// errNoNode says that the node is not registered yet.
var errNoNode = errors.New("the node is not registered yet")

// install shows a driver in the CSINode object, and what it says about the node
// in the node's labels and annotations.
func (r *Registry) install(ctx context.Context, name string, about *csipb.NodeGetInfoResponse) error {
	if r.volumes.Client == nil {
		return nil
	}
	if err := r.label(ctx, name, about); err != nil {
		return err
	}
	entry := storagev1.CSINodeDriver{
		Name: name, NodeID: about.GetNodeId(),
		TopologyKeys: slices.Sorted(maps.Keys(about.GetAccessibleTopology().GetSegments())),
	}
	if most := about.GetMaxVolumesPerNode(); most > 0 {
		count := int32(min(most, math.MaxInt32))
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return r.write(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return append(without(drivers, name), entry)
	})
}

// uninstall removes a driver from the CSINode object and its annotation from the
// node. The node keeps its labels, because volumes may depend on them.
func (r *Registry) uninstall(ctx context.Context, name string) error {
	if r.volumes.Client == nil {
		return nil
	}
	err := r.write(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver { return without(drivers, name) })
	return errors.Join(err, r.label(ctx, name, nil))
}

func without(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(drivers), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}

// newObject returns a CSINode object without drivers.
func newObject(node *v1.Node) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
}

// isOfEarlierNode reports whether a CSINode object belongs to a Node object of the
// name that was deleted. The garbage collector is about to delete it.
func isOfEarlierNode(object *storagev1.CSINode, node *v1.Node) bool {
	isNode := func(ref metav1.OwnerReference) bool { return ref.Kind == "Node" }
	isThis := func(ref metav1.OwnerReference) bool { return ref.UID == node.UID }
	return slices.ContainsFunc(object.OwnerReferences, isNode) && !slices.ContainsFunc(object.OwnerReferences, isThis)
}

// write changes the drivers of the CSINode object, and creates the object if it
// is missing, or was that of an earlier Node object. change may be nil.
func (r *Registry) write(ctx context.Context, change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	node := r.volumes.Node()
	if node == nil || node.UID == "" {
		return errNoNode
	}
	objects := r.volumes.Client.Kubernetes.StorageV1().CSINodes()
	return apiretry.OnError(apiretry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		object, err := objects.Get(ctx, node.Name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err == nil && isOfEarlierNode(object, node) {
			err = objects.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(object.UID))})
			missing = err == nil || apierrors.IsNotFound(err)
		}
		if missing {
			object = newObject(node)
			if change != nil {
				object.Spec.Drivers = change(object.Spec.Drivers)
			}
			_, err = objects.Create(ctx, object, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		after := object.DeepCopy()
		if change != nil {
			after.Spec.Drivers = change(after.Spec.Drivers)
		}
		if equality.Semantic.DeepEqual(sorted(object.Spec.Drivers), sorted(after.Spec.Drivers)) {
			return nil
		}
		_, err = objects.Update(ctx, after, metav1.UpdateOptions{})
		return err
	})
}

func sorted(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
	return slices.SortedFunc(slices.Values(drivers), func(a, b storagev1.CSINodeDriver) int { return strings.Compare(a.Name, b.Name) })
}

// nodeIDs is the annotation of a node with what drivers call it.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// label writes the labels of a driver's topology and its name of the node into
// the Node object. If about is nil, it removes the name.
func (r *Registry) label(ctx context.Context, name string, about *csipb.NodeGetInfoResponse) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	node := r.volumes.Node()
	if node == nil || node.UID == "" {
		return errNoNode
	}
	nodes := r.volumes.Client.Kubernetes.CoreV1().Nodes()
	node, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	labels := map[string]string{}
	for key, value := range about.GetAccessibleTopology().GetSegments() {
		if has, ok := node.Labels[key]; ok && has != value {
			return fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", key, value, key, has)
		} else if !ok {
			labels[key] = value
		}
	}
	ids := map[string]string{}
	if raw := node.Annotations[nodeIDs]; raw != "" && (json.Unmarshal([]byte(raw), &ids) != nil || ids == nil) { // null is a map, too
		ids = map[string]string{}
	}
	before := ids[name]
	if about != nil {
		ids[name] = about.GetNodeId()
	} else {
		delete(ids, name)
	}
	if ids[name] == before && len(labels) == 0 {
		return nil
	}
	raw, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	annotations := map[string]any{nodeIDs: string(raw)}
	if len(ids) == 0 {
		annotations[nodeIDs] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": labels, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
