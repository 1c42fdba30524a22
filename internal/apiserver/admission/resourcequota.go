package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	resources "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/quota"
)

// QuotaUpdater writes the statuses of quotas.
type QuotaUpdater interface {
	// Update stores the result of next for a quota, and retries on conflicts. A
	// nil result leaves the quota unchanged.
	Update(ctx context.Context, namespace, name string, next func(*corev1.ResourceQuota) (*corev1.ResourceQuota, error)) error
}

// resourceQuota charges the usage of a write to the quotas of its namespace
// before the write. It updates the quota's status with a precondition, so that
// two servers never grant the same remainder. If the write fails later, the
// quota controller corrects the status.
type resourceQuota struct {
	onWrite
	quotas  objects.Reader[*corev1.ResourceQuota]
	updater QuotaUpdater
	find    quota.Lookup
	// limited are the resources that may only be used where a quota limits them.
	limited []resourcequotaapi.LimitedResource

	mu      sync.Mutex // guards charged
	charged map[string]*charging
}

// charging serializes the charges to one namespace.
type charging struct {
	mu    sync.Mutex
	users int
}

func newResourceQuota(c *Config) admission.Interface {
	if c.QuotaUpdater == nil {
		return nil
	}
	classes, pods := objects.Of[*resourcev1.DeviceClass](c.Objects, objects.DeviceClasses), objects.Of[*corev1.Pod](c.Objects, objects.Pods)
	return &resourceQuota{
		quotas: objects.Of[*corev1.ResourceQuota](c.Objects, objects.ResourceQuotas), updater: c.QuotaUpdater, charged: map[string]*charging{},
		limited: c.Configured["ResourceQuota"].limited,
		find: quota.Lookup{
			Features: c.Features,
			Class:    func(name string) (*resourcev1.DeviceClass, bool) { return classes.Get("", name) },
			Pod:      pods.Get,
		},
	}
}

func (p *resourceQuota) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resize := is(a, "", "pods", "resize")
	if a.GetNamespace() == "" || a.GetSubresource() != "" && !resize || a.GetKind().Kind == "Namespace" {
		return nil
	}
	none := true
	for range p.quotas.All(a.GetNamespace()) {
		none = false
		break
	}
	if none && len(p.limited) == 0 {
		return nil
	}
	all := p.usage(a, a.GetObject())
	delta := all
	if a.GetOperation() == admission.Update {
		delta = resources.SubtractWithNonNegativeResult(delta, p.usage(a, a.GetOldObject()))
	}
	if err := p.uncovered(a, all, delta); err != nil || none {
		return err
	}
	defer p.lock(a.GetNamespace())()
	var names []string
	for q := range p.quotas.All(a.GetNamespace()) {
		names = append(names, q.Name)
	}
	var charged []charge
	for _, name := range names {
		c, err := p.charge(ctx, a, name, all, delta)
		if err != nil {
			if undo := p.release(ctx, charged); undo != nil {
				klog.FromContext(ctx).Error(undo, "Cannot release the quota of a refused write; the quota controller will", "namespace", a.GetNamespace())
			}
			return err
		}
		if c != nil {
			charged = append(charged, *c)
		}
	}
	return nil
}

// usage returns the quota usage of an object of the write, however long it has
// been terminating.
func (p *resourceQuota) usage(a admission.Attributes, obj any) corev1.ResourceList {
	return quota.Usage(a.GetResource().GroupResource(), obj, time.Time{}, p.find)
}

type charge struct {
	namespace, name string
	amount          corev1.ResourceList
}

// charge adds delta, a part of all that the object uses, to the usage of one
// quota, or refuses the write. It returns nil if the quota does not apply.
func (p *resourceQuota) charge(ctx context.Context, a admission.Attributes, name string, all, delta corev1.ResourceList) (*charge, error) {
	var charged *charge
	var refusal error
	err := p.updater.Update(ctx, a.GetNamespace(), name, func(q *corev1.ResourceQuota) (*corev1.ResourceQuota, error) {
		charged = nil
		next, amount, err := fits(q, a, all, delta)
		if refusal = err; err != nil || next == nil || a.IsDryRun() {
			return nil, err
		}
		charged = &charge{q.Namespace, q.Name, amount}
		return next, nil
	})
	switch {
	case err == nil:
		return charged, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case refusal != nil && errors.Is(err, refusal):
		return nil, refusal
	}
	return nil, apierrors.NewInternalError(fmt.Errorf("charging the resource quota %s: %w", name, err))
}

// fits returns the quota with delta added to its usage, and the part of delta
// that it limits. all is what the object uses: an update by which the quota
// begins to select the object is charged in full. fits returns nil if the quota
// does not apply. The error says which limit is exceeded or which resource is
// not specified.
func fits(q *corev1.ResourceQuota, a admission.Attributes, all, delta corev1.ResourceList) (next *corev1.ResourceQuota, amount corev1.ResourceList, err error) {
	if !quota.Selects(q, a.GetObject()) {
		return nil, nil, nil
	}
	if a.GetOperation() == admission.Update && !quota.Selects(q, a.GetOldObject()) {
		delta = all
	}
	limited := limitedBy(q, all, a.GetObject())
	if len(limited) == 0 {
		return nil, nil, unknown(q, a, all)
	}
	if pod, ok := a.GetObject().(*corev1.Pod); ok && a.GetOperation() == admission.Create {
		if err := unspecified(pod, limited); err != nil {
			return nil, nil, refused(a, "failed quota: %s: %w", q.Name, err)
		}
	}
	if err := unknown(q, a, all); err != nil {
		return nil, nil, err
	}
	requested := resources.RemoveZeros(resources.Mask(delta, limited))
	if len(requested) == 0 {
		return nil, nil, nil
	}
	used := resources.Add(q.Status.Used, requested)
	if ok, exceeded := resources.LessThanOrEqual(resources.Mask(used, resources.ResourceNames(requested)), q.Status.Hard); !ok {
		return nil, nil, refused(a, "exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name,
			describeList(resources.Mask(requested, exceeded)), describeList(resources.Mask(q.Status.Used, exceeded)), describeList(resources.Mask(q.Status.Hard, exceeded)))
	}
	next = q.DeepCopy()
	next.Status.Used = resources.Mask(used, resources.ResourceNames(q.Status.Hard))
	return next, requested, nil
}

// unknown refuses the write while the quota controller has not computed the
// usage yet.
func unknown(q *corev1.ResourceQuota, a admission.Attributes, all corev1.ResourceList) error {
	var names []string
	for name := range q.Spec.Hard {
		if _, concerned := all[name]; !concerned {
			continue
		}
		_, hard := q.Status.Hard[name]
		if _, used := q.Status.Used[name]; !hard || !used {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return refused(a, "status unknown for quota: %s, resources: %s", q.Name, strings.Join(names, ","))
}

// release reverts the charges to some quotas after another has refused the
// write.
func (p *resourceQuota) release(ctx context.Context, charged []charge) error {
	var errs []error
	for _, c := range charged {
		err := p.updater.Update(ctx, c.namespace, c.name, func(q *corev1.ResourceQuota) (*corev1.ResourceQuota, error) {
			next := q.DeepCopy()
			next.Status.Used = resources.Mask(resources.SubtractWithNonNegativeResult(q.Status.Used, c.amount), resources.ResourceNames(q.Status.Hard))
			return next, nil
		})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lock serializes the charges of this server to a namespace, so that their
// updates do not conflict.
func (p *resourceQuota) lock(namespace string) (unlock func()) {
	p.mu.Lock()
	c := p.charged[namespace]
	if c == nil {
		c = &charging{}
		p.charged[namespace] = c
	}
	c.users++
	p.mu.Unlock()
	c.mu.Lock()
	return func() {
		c.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.users--; c.users == 0 {
			delete(p.charged, namespace)
		}
	}
}

func describeList(l corev1.ResourceList) string {
	var parts []string
	for name, q := range l {
		parts = append(parts, string(name)+"="+q.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
