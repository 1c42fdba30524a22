// Package resourcequota is the ResourceQuota controller. It updates the status of
// ResourceQuotas with the usage by all objects of the namespace.
//
//	admission ──charges──▶ status.used ◀──counts── this controller
//
// Admission charges the usage of an object before it is written. The controller
// counts the existing objects, and so releases the usage of objects that were
// deleted, have finished, or were charged but never written.
package resourcequota

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
	"github.com/coracle-io/coracle/internal/quota"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := defaultOptions()
	return controller.Descriptor{
		Name:           "resourcequota-controller",
		Aliases:        []string{"resourcequota"},
		ServiceAccount: "resourcequota-controller",
		EventSource:    "resourcequota-controller",
		AddFlags:       o.addFlags,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

type options struct {
	workers    int
	syncPeriod time.Duration // 0 disables periodic counting
}

func defaultOptions() *options { return &options{workers: 5, syncPeriod: 5 * time.Minute} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	controller.WorkersFlag(&o.workers, "concurrent-resource-quota-syncs", "resource quotas")(fs)
	fs.DurationVar(&o.syncPeriod, "resource-quota-sync-period", o.syncPeriod, "how often the usage of all quotas is recalculated")
}

// recountDelay is the delay before a quota is counted again after admission has
// charged it, or while a limited resource is not served.
const recountDelay = 5 * time.Second

type counter struct {
	env      *controller.Env
	options  *options
	quotas   corelisters.ResourceQuotaLister
	monitors *monitors
	queue    *controller.Queue[controller.Key]
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	objects, err := env.Metadata()
	if err != nil {
		return nil, err
	}
	return newCounter(env, objects, o), nil
}

func newCounter(env *controller.Env, objects metadata.Interface, o *options) *counter {
	c := &counter{env: env, options: o, quotas: env.Client.Informers.Core().V1().ResourceQuotas().Lister()}
	c.monitors = &monitors{env: env, objects: objects, changed: c.objectChanged, running: map[schema.GroupResource]*kinds.Monitor{}}
	c.queue = controller.NewQueueWithMaxDelay(env.Queues, "resourcequota_primary", time.Minute, controller.Existing[controller.Key](env.Client.Informers.Core().V1().ResourceQuotas().Informer(), c.sync))
	return c
}

// Run implements controller.Controller.
func (c *counter) Run(ctx context.Context) error {
	defer c.monitors.closeExcept(nil)
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().ResourceQuotas().Informer(), c.quotaChanged),
	}, c.queue.Workers(c.options.workers), c.resync)
}

// quotaChanged enqueues a quota at once if its spec has changed, and after
// recountDelay if admission has charged it.
func (c *counter) quotaChanged(old, new *v1.ResourceQuota) {
	switch {
	case new == nil:
	case old == nil, !equality.Semantic.DeepEqual(old.Spec, new.Spec):
		c.queue.Add(cache.MetaObjectToName(new))
	case !equality.Semantic.DeepEqual(old.Status, new.Status):
		c.queue.AddAfter(cache.MetaObjectToName(new), recountDelay)
	}
}

// objectChanged enqueues the quotas that may count an object: after recountDelay
// for a new object, which admission has already charged, otherwise at once.
func (c *counter) objectChanged(gr schema.GroupResource, old, new any) {
	meta, ok := new.(metav1.Object)
	if !ok {
		meta, ok = old.(metav1.Object)
	}
	if !ok {
		return
	}
	// A class has no namespace: claims in all of them may use its devices.
	quotas, err := c.quotas.ResourceQuotas(meta.GetNamespace()).List(labels.Everything())
	if err != nil || len(quotas) == 0 || old != nil && new != nil && !usageChanged(gr, old, new, c.monitors.lookup()) {
		return
	}
	if gr == quota.DeviceClasses {
		gr = quota.ResourceClaims
	}
	for _, q := range quotas {
		if tracked(q)[gr] == nil {
			continue
		}
		if key := cache.MetaObjectToName(q); old == nil {
			c.queue.AddAfter(key, recountDelay)
		} else {
			c.queue.Add(key)
		}
	}
}

// usageChanged reports whether an update changes the usage of an object or the
// quotas that count it.
func usageChanged(gr schema.GroupResource, old, new any, find quota.Lookup) bool {
	if before, ok := old.(*v1.Pod); ok {
		after, ok := new.(*v1.Pod)
		if !ok || !equality.Semantic.DeepEqual(before.Spec.ActiveDeadlineSeconds, after.Spec.ActiveDeadlineSeconds) {
			return true
		}
	}
	if before, ok := old.(*v1.PersistentVolumeClaim); ok {
		after, ok := new.(*v1.PersistentVolumeClaim)
		if !ok || !equality.Semantic.DeepEqual(before.Spec.VolumeAttributesClassName, after.Spec.VolumeAttributesClassName) ||
			!equality.Semantic.DeepEqual(before.Status.CurrentVolumeAttributesClassName, after.Status.CurrentVolumeAttributesClassName) ||
			!equality.Semantic.DeepEqual(before.Status.ModifyVolumeStatus, after.Status.ModifyVolumeStatus) {
			return true
		}
	}
	if before, ok := old.(*resourceapi.DeviceClass); ok {
		after, ok := new.(*resourceapi.DeviceClass)
		return !ok || !equality.Semantic.DeepEqual(before.Spec.ExtendedResourceName, after.Spec.ExtendedResourceName)
	}
	now := time.Now()
	return !equality.Semantic.DeepEqual(quota.Usage(gr, old, now, find), quota.Usage(gr, new, now, find))
}

// resync periodically enqueues all quotas and closes monitors that no quota needs
// any more.
func (c *counter) resync(ctx context.Context) error {
	if c.options.syncPeriod <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(c.options.syncPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		quotas, err := c.quotas.List(labels.Everything())
		if err != nil {
			return err
		}
		needed := map[schema.GroupResource]bool{}
		for _, q := range quotas {
			for gr := range tracked(q) {
				needed[gr] = true
			}
		}
		needs(needed)
		c.monitors.closeUnneeded(needed)
		for _, q := range quotas {
			c.queue.Add(cache.MetaObjectToName(q))
		}
	}
}

func (c *counter) sync(ctx context.Context, q *v1.ResourceQuota) error {
	names := tracked(q)
	needed := map[schema.GroupResource]bool{}
	for gr := range names {
		needed[gr] = true
	}
	needs(needed)
	missing, err := c.monitors.add(ctx, needed)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		klog.FromContext(ctx).V(4).Info("Resources that a quota limits are not served yet", "quota", klog.KObj(q), "resources", missing)
		c.queue.AddAfter(cache.MetaObjectToName(q), recountDelay)
	}
	counted, err := c.count(q, names)
	if err != nil {
		return err
	}
	status := statusOf(q, counted)
	if equal(q.Status, status) {
		return nil
	}
	next := &v1.ResourceQuota{ObjectMeta: q.ObjectMeta, Spec: q.Spec, Status: status}
	_, err = c.env.Client.Kubernetes.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}

// count returns the usage of a quota. What cannot be counted completely is missing in it.
func (c *counter) count(q *v1.ResourceQuota, names map[schema.GroupResource][]v1.ResourceName) (v1.ResourceList, error) {
	counted, unknown := v1.ResourceList{}, map[v1.ResourceName]bool{}
	for gr, names := range names {
		objects, ok, err := c.monitors.objectsIn(gr, q.Namespace)
		if err != nil {
			return nil, fmt.Errorf("counting %s: %w", gr, err)
		}
		if !ok {
			for _, name := range names {
				unknown[name] = unknown[name] || gr == quota.Tracked(name)[0] || c.monitors.watches(gr)
			}
			continue
		}
		for name, amount := range count(q, gr, names, objects, time.Now(), c.monitors.lookup()) {
			total := counted[name]
			total.Add(amount)
			counted[name] = total
		}
	}
	for name, is := range unknown {
		if is {
			delete(counted, name)
		}
	}
	return counted, nil
}
