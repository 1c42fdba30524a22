// Package selinuxwarning is the SELinux warning controller (KEP-1710). It records events
// about pods that use the same volume with different SELinux labels, or with different
// policies of how a volume gets its label: on one node, only one of them can use it. It looks
// at volumes of CSI drivers that can mount with a label, whether or not the pods may run on
// the same node. It changes nothing, and is off by default, as nodes without SELinux have no
// such conflicts.
package selinuxwarning

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	known := &uses{}
	return controller.Descriptor{
		Name:           "selinux-warning-controller",
		ServiceAccount: "selinux-warning-controller",
		EventSource:    "selinux_warning",
		OffByDefault:   true,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, known) },
	}
}

type warner struct {
	env     *controller.Env
	pods    cache.SharedIndexInformer
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	drivers storagelisters.CSIDriverLister
	queue   *controller.Queue[controller.Key] // of pods
	known   *uses
}

// newController builds the controller. known is the state, which metrics show also while no
// instance runs.
func newController(env *controller.Env, known *uses) (controller.Controller, error) {
	known.clear()
	if err := env.Expose(known); err != nil {
		return nil, err
	}
	core := env.Client.Informers.Core().V1()
	c := &warner{
		env: env, known: known, pods: core.Pods().Informer(), claims: core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(), drivers: env.Client.Informers.Storage().V1().CSIDrivers().Lister(),
	}
	c.queue = controller.NewQueue(env.Queues, "selinux_warning", c.sync)
	return c, env.Index(c.pods, pods.ByClaim, pods.ClaimKeys)
}

// Run implements controller.Controller.
func (c *warner) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.pods, func(old, pod *v1.Pod) {
			switch {
			case pod == nil:
				c.queue.Add(cache.MetaObjectToName(old))
			case old == nil, podquery.IsFinished(old) != podquery.IsFinished(pod):
				c.queue.Add(cache.MetaObjectToName(pod))
			}
		}),
		controller.On(core.PersistentVolumeClaims().Informer(), func(old, claim *v1.PersistentVolumeClaim) {
			if claim != nil && (old == nil || old.Spec.VolumeName != claim.Spec.VolumeName || old.Status.Phase != claim.Status.Phase) {
				c.enqueueUsers(claim)
			}
		}),
		controller.On(core.PersistentVolumes().Informer(), func(old, volume *v1.PersistentVolume) {
			if volume == nil || volume.Spec.ClaimRef == nil {
				return
			}
			if ref := volume.Spec.ClaimRef; old == nil || old.Spec.ClaimRef == nil || old.Spec.ClaimRef.UID != ref.UID {
				c.enqueueUsers(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}})
			}
		}),
		controller.On(c.env.Client.Informers.Storage().V1().CSIDrivers().Informer(), func(old, driver *storagev1.CSIDriver) {
			if mounts(old) == mounts(driver) {
				return
			}
			if driver == nil {
				driver = old
			}
			for _, pod := range c.known.ofDriver(driver.Name) {
				c.queue.Add(pod)
			}
		}),
	}, c.queue.Workers(1))
}

// mounts reports whether a driver mounts volumes with SELinux labels. It may be nil.
func mounts(driver *storagev1.CSIDriver) bool {
	return driver != nil && ptr.Deref(driver.Spec.SELinuxMount, false)
}

// enqueueUsers enqueues the pods that name a claim.
func (c *warner) enqueueUsers(claim *v1.PersistentVolumeClaim) {
	users, err := pods.OfClaim(c.pods, claim)
	if err != nil {
		return
	}
	for _, pod := range users {
		c.queue.Add(cache.MetaObjectToName(pod))
	}
}

func (c *warner) sync(_ context.Context, key controller.Key) error {
	o, exists, err := c.pods.GetIndexer().GetByKey(key.String())
	if err != nil {
		return err
	}
	var now map[v1.UniqueVolumeName]use
	if pod, ok := o.(*v1.Pod); exists && ok && !podquery.IsFinished(pod) {
		now = c.usesOf(pod)
	}
	for _, found := range c.known.set(key, now) {
		if o, exists, err := c.pods.GetIndexer().GetByKey(found.pod.String()); err == nil && exists {
			c.env.Events.Event(o.(*v1.Pod), v1.EventTypeNormal, found.reason(), found.message())
		}
	}
	return nil
}

// usesOf returns how a pod uses the volumes of CSI drivers that its containers mount. Claims that
// are not bound have none yet. It records an event if containers use a volume with different labels.
func (c *warner) usesOf(pod *v1.Pod) map[v1.UniqueVolumeName]use {
	labels := map[string]sets.Set[v1.SELinuxOptions]{} // by the name of the volume
	for container := range podquery.AllContainers(&pod.Spec) {
		label := labelOf(pod, container)
		for _, m := range container.VolumeMounts {
			if labels[m.Name] == nil {
				labels[m.Name] = sets.New[v1.SELinuxOptions]()
			}
			if label != nil {
				labels[m.Name].Insert(*label)
			}
		}
	}
	all := map[v1.UniqueVolumeName]use{}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		used, mounted := labels[vol.Name]
		volume, err := pods.PersistentVolume(c.claims, c.volumes, pod, vol)
		if !mounted || err != nil || volume == nil || volume.Spec.CSI == nil {
			continue
		}
		if used.Len() > 1 {
			c.env.Events.Eventf(pod, v1.EventTypeWarning, "MultipleSELinuxLabels", "Volume %q is mounted twice with different SELinux labels inside this pod", vol.Name)
			continue
		}
		label, _ := used.PopAny()
		driver, err := c.drivers.Get(volume.Spec.CSI.Driver)
		all[csivolume.UniqueName(volume.Spec.CSI.Driver, volume.Spec.CSI.VolumeHandle)] = useOf(pod, label, err == nil && mounts(driver))
	}
	return all
}

// labelOf returns the label of a container, nil if neither it nor its pod has one.
func labelOf(pod *v1.Pod, container *v1.Container) *v1.SELinuxOptions {
	if s := container.SecurityContext; s != nil && s.SELinuxOptions != nil {
		return s.SELinuxOptions
	}
	if s := pod.Spec.SecurityContext; s != nil {
		return s.SELinuxOptions
	}
	return nil
}

// useOf returns how a pod uses a volume with a label. A volume that cannot be mounted with it, and
// that of a pod without one, gets the labels of its files one by one.
func useOf(pod *v1.Pod, label v1.SELinuxOptions, mountable bool) use {
	policy := v1.SELinuxChangePolicyMountOption
	if s := pod.Spec.SecurityContext; s != nil && s.SELinuxChangePolicy != nil {
		policy = *s.SELinuxChangePolicy
	}
	if !mountable || label == (v1.SELinuxOptions{}) || policy == v1.SELinuxChangePolicyRecursive {
		return use{policy: v1.SELinuxChangePolicyRecursive}
	}
	return use{label, policy}
}
