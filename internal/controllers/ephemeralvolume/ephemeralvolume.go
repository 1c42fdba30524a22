// Package ephemeralvolume is the ephemeral volume controller. It creates the claims of generic
// ephemeral volumes (KEP-1698). The owner of a claim is its pod, so that it is deleted with it.
package ephemeralvolume

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, counted := 5, newCounts()
	return controller.Descriptor{
		Name:           "ephemeral-volume-controller",
		Aliases:        []string{"ephemeral-volume"},
		ServiceAccount: "ephemeral-volume-controller",
		EventSource:    "ephemeral_volume",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-ephemeralvolume-syncs", "ephemeral volumes"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, counted) },
	}
}

// counts are the controller's metrics, by upstream's names.
type counts struct{ creations, failures prometheus.Counter }

func newCounts() *counts {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "ephemeral_volume_controller", Name: name, Help: "[ALPHA] " + help})
	}
	return &counts{
		creations: counter("create_total", "Number of PersistentVolumeClaim creation requests"),
		failures:  counter("create_failures_total", "Number of PersistentVolumeClaim creation request failures"),
	}
}

type claims struct {
	env     *controller.Env
	counts  *counts
	claims  corelisters.PersistentVolumeClaimLister
	queue   *controller.Queue[controller.Key]
	workers int
}

func newController(env *controller.Env, workers int, counted *counts) (controller.Controller, error) {
	if err := env.Expose(counted.creations, counted.failures); err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &claims{env: env, counts: counted, workers: workers, claims: core.PersistentVolumeClaims().Lister()}
	c.queue = controller.NewQueue(env.Queues, "ephemeral_volume", controller.Existing[controller.Key](core.Pods().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *claims) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Pods().Informer(), func(old, pod *v1.Pod) {
			// The volumes of a pod never change.
			if old == nil && pod != nil && len(ephemeralVolumes(pod)) > 0 {
				c.queue.Add(cache.MetaObjectToName(pod))
			}
		}),
		controller.On(core.PersistentVolumeClaims().Informer(), func(old, claim *v1.PersistentVolumeClaim) {
			if claim != nil {
				return
			}
			if owner := metav1.GetControllerOf(old); owner != nil && owner.Kind == "Pod" {
				c.queue.Add(controller.Key{Namespace: old.Namespace, Name: owner.Name})
			}
		}),
	}, c.queue.Workers(c.workers))
}

func ephemeralVolumes(pod *v1.Pod) []*v1.Volume {
	var out []*v1.Volume
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral != nil {
			out = append(out, &pod.Spec.Volumes[i])
		}
	}
	return out
}

func (c *claims) sync(ctx context.Context, pod *v1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	for _, volume := range ephemeralVolumes(pod) {
		if err := c.ensure(ctx, pod, volume); err != nil {
			c.env.Events.Eventf(pod, v1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", volume.Name, err)
			return fmt.Errorf("pod %s, ephemeral volume %s: %w", cache.MetaObjectToName(pod), volume.Name, err)
		}
	}
	return nil
}

// ensure creates the claim of a volume if it does not exist. It returns an error if there is a
// claim with that name that is not owned by the pod, because it may contain other data.
func (c *claims) ensure(ctx context.Context, pod *v1.Pod, volume *v1.Volume) error {
	name := ephemeral.VolumeClaimName(pod, volume)
	have, err := c.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	if err == nil {
		return ephemeral.VolumeIsForPod(pod, have)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	template := volume.Ephemeral.VolumeClaimTemplate
	c.counts.creations.Inc()
	_, err = c.env.Client.Kubernetes.CoreV1().PersistentVolumeClaims(pod.Namespace).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: template.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		c.counts.failures.Inc()
		return fmt.Errorf("create PVC %s: %w", name, err)
	}
	return nil
}
