// Package resourcequota keeps the statuses of ResourceQuotas: what is limited
// and what is used of it, counted over all objects of the namespace.
//
//	admission ──charges──▶ status.used ◀──counts── this controller
//
// Admission adds what a write takes before it happens; the controller counts
// what is there, and so gives back what was deleted, has ended, or was charged
// to a write that failed afterwards.
package resourcequota

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	syncPeriod time.Duration // 0: usage is only counted when something changes
}

func defaultOptions() *options { return &options{workers: 5, syncPeriod: 5 * time.Minute} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	controller.WorkersFlag(&o.workers, "concurrent-resource-quota-syncs", "resource quotas")(fs)
	fs.DurationVar(&o.syncPeriod, "resource-quota-sync-period", o.syncPeriod, "The period for syncing quota usage status in the system.")
}

// settle is how long after something was charged, or while a limited resource
// is not served, a quota is counted again.
const settle = 5 * time.Second

type counter struct {
	env     *controller.Env
	options *options
	quotas  corelisters.ResourceQuotaLister
	watched *watched
	queue   *controller.Queue[controller.Key]
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
	c.watched = &watched{env: env, objects: objects, changed: c.objectChanged, running: map[schema.GroupResource]*kinds.Monitor{}}
	c.queue = controller.NewQueueWithin("resourcequota_primary", time.Minute, controller.Existing[controller.Key](env.Client.Informers.Core().V1().ResourceQuotas().Informer(), c.sync))
	return c
}

// Run implements controller.Controller.
func (c *counter) Run(ctx context.Context) error {
	defer c.watched.keep(nil)
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().ResourceQuotas().Informer(), c.quotaChanged),
	}, c.queue.Workers(c.options.workers), c.resync)
}

// quotaChanged counts at once what is limited newly, and after a while what
// admission has charged.
func (c *counter) quotaChanged(old, new *v1.ResourceQuota) {
	switch {
	case new == nil:
	case old == nil, !equality.Semantic.DeepEqual(old.Spec, new.Spec):
		c.queue.Add(cache.MetaObjectToName(new))
	case !equality.Semantic.DeepEqual(old.Status, new.Status):
		c.queue.AddAfter(cache.MetaObjectToName(new), settle)
	}
}

// objectChanged counts anew the quotas that an object took from: at once if
// it takes less, after a while if it was charged already.
func (c *counter) objectChanged(gr schema.GroupResource, old, new any) {
	meta, ok := new.(metav1.Object)
	if !ok {
		meta, ok = old.(metav1.Object)
	}
	if !ok {
		return
	}
	quotas, err := c.quotas.ResourceQuotas(meta.GetNamespace()).List(labels.Everything())
	if err != nil || len(quotas) == 0 || old != nil && new != nil && !matters(gr, old, new) {
		return
	}
	for _, q := range quotas {
		if tracked(q)[gr] == nil {
			continue
		}
		if key := cache.MetaObjectToName(q); old == nil {
			c.queue.AddAfter(key, settle)
		} else {
			c.queue.Add(key)
		}
	}
}

// matters says whether an update changes what an object takes, or from which
// quotas.
func matters(gr schema.GroupResource, old, new any) bool {
	if before, ok := old.(*v1.Pod); ok {
		after, ok := new.(*v1.Pod)
		if !ok || !equality.Semantic.DeepEqual(before.Spec.ActiveDeadlineSeconds, after.Spec.ActiveDeadlineSeconds) {
			return true
		}
	}
	if before, ok := old.(*v1.PersistentVolumeClaim); ok {
		after, ok := new.(*v1.PersistentVolumeClaim)
		if !ok || !equality.Semantic.DeepEqual(before.Spec.VolumeAttributesClassName, after.Spec.VolumeAttributesClassName) {
			return true
		}
	}
	now := time.Now()
	return !equality.Semantic.DeepEqual(quota.Usage(gr, old, now), quota.Usage(gr, new, now))
}

// resync counts everything once in a while, and ends the watches that no
// quota needs any longer.
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
		c.watched.drop(needed)
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
	missing, err := c.watched.add(ctx, needed)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		klog.FromContext(ctx).V(4).Info("Resources that a quota limits are not served yet", "quota", klog.KObj(q), "resources", missing)
		c.queue.AddAfter(cache.MetaObjectToName(q), settle)
	}
	counted := v1.ResourceList{}
	for gr, names := range names {
		objects, ok, err := c.watched.in(gr, q.Namespace)
		if err != nil {
			return fmt.Errorf("counting %s: %w", gr, err)
		}
		if !ok {
			continue
		}
		for name, amount := range count(q, gr, names, objects, time.Now()) {
			counted[name] = amount
		}
	}
	status := statusOf(q, counted)
	if same(q.Status, status) {
		return nil
	}
	next := &v1.ResourceQuota{ObjectMeta: q.ObjectMeta, Spec: q.Spec, Status: status}
	_, err = c.env.Client.Kubernetes.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
