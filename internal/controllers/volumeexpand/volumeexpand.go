// Package volumeexpand is the persistentvolume expander. It expands no volumes: the
// external resizer of a CSI driver expands the driver's volumes. The expander
// records an event that says so for each claim that waits for its expansion, and asks
// the driver that took the place of an in-tree plugin for it.
package volumeexpand

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/csimigration"
)

// resizerAnnotation names the driver that is to expand a volume of an in-tree plugin.
const resizerAnnotation = "volume.kubernetes.io/storage-resizer"

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "persistentvolume-expander-controller",
		Aliases:        []string{"persistentvolume-expander"},
		ServiceAccount: "expand-controller",
		EventSource:    "volume_expand",
		New:            newController,
	}
}

type expander struct {
	env     *controller.Env
	claims  cache.SharedIndexInformer
	volumes corelisters.PersistentVolumeLister
	queue   *controller.Queue[controller.Key]
}

func newController(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &expander{env: env, claims: core.PersistentVolumeClaims().Informer(), volumes: core.PersistentVolumes().Lister()}
	c.queue = controller.NewQueue(env.Queues, "volume_expand", controller.Existing[controller.Key](c.claims, c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *expander) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.claims, func(old, claim *v1.PersistentVolumeClaim) {
			if claim != nil && (old == nil || requested(claim).Cmp(*requested(old)) > 0 || old.Status.Phase != claim.Status.Phase) {
				c.queue.Add(cache.MetaObjectToName(claim))
			}
		}),
		controller.Reads(c.env.Client.Informers.Core().V1().PersistentVolumes().Informer()),
	}, c.queue.Workers(1))
}

func requested(claim *v1.PersistentVolumeClaim) *resource.Quantity {
	return claim.Spec.Resources.Requests.Storage()
}

func (c *expander) sync(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	if claim.Status.Phase != v1.ClaimBound || claim.Spec.VolumeName == "" || requested(claim).Cmp(*claim.Status.Capacity.Storage()) <= 0 {
		return nil
	}
	volume, err := c.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return fmt.Errorf("reading the volume of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if ref := volume.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return nil
	}
	const external = "ExternalExpanding"
	plugin := csimigration.Plugin(&volume.Spec.PersistentVolumeSource)
	if plugin == "" {
		c.env.Events.Event(claim, v1.EventTypeNormal, external, "waiting for an external controller to expand this PVC")
		return nil
	}
	c.env.Events.Eventf(claim, v1.EventTypeNormal, external, "CSI migration enabled for %s; waiting for external resizer to expand the pvc", plugin)
	if err := c.setResizer(ctx, claim, csimigration.Driver(plugin)); err != nil {
		c.env.Events.Eventf(claim, v1.EventTypeWarning, external, "error setting resizer annotation to pvc %s/%s, with error %v", claim.Namespace, claim.Name, err)
		return err
	}
	return nil
}

// setResizer names the driver in a claim. Without that, the driver's resizer takes the
// volume for that of an in-tree plugin.
func (c *expander) setResizer(ctx context.Context, claim *v1.PersistentVolumeClaim, driver string) error {
	if claim.Annotations[resizerAnnotation] == driver {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "annotations": map[string]string{resizerAnnotation: driver},
	}})
	if err != nil {
		return err
	}
	claims := c.env.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace)
	_, err = claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
