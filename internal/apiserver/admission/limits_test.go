package admission

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = apiresource.MustParse(pairs[i+1])
	}
	return l
}

func sized(requests, limits corev1.ResourceList) *corev1.Pod {
	return pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	})
}

func TestLimitRanger(t *testing.T) {
	p := func(items ...corev1.LimitRangeItem) *Config {
		return config(objectstest.NewMemory().Put(objects.LimitRanges, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: items}}))
	}
	o := pod(nil)
	run(t, newLimitRanger(p(corev1.LimitRangeItem{Type: "Container", DefaultRequest: list("cpu", "100m", "memory", "5Mi"), Default: list("memory", "10Mi")})),
		write{kind: "Pod", resource: "pods", obj: o})
	if o.Annotations["kubernetes.io/limit-ranger"] != "LimitRanger plugin set: cpu, memory request for container c; memory limit for container c" {
		t.Errorf("%v", o.Annotations)
	}
	for name, test := range map[string]struct {
		item corev1.LimitRangeItem
		pod  *corev1.Pod
		want string
	}{
		"minimum":    {corev1.LimitRangeItem{Type: "Container", Min: list("cpu", "100m")}, sized(list("cpu", "50m"), nil), `pods "p" is forbidden: minimum cpu usage per Container is 100m, but request is 50m`},
		"no request": {corev1.LimitRangeItem{Type: "Container", Min: list("memory", "6Mi")}, sized(nil, nil), `pods "p" is forbidden: minimum memory usage per Container is 6Mi.  No request is specified`},
		"maximum":    {corev1.LimitRangeItem{Type: "Pod", Max: list("cpu", "1")}, sized(nil, list("cpu", "2")), `pods "p" is forbidden: maximum cpu usage per Pod is 1, but limit is 2`},
		"no limit":   {corev1.LimitRangeItem{Type: "Container", Max: list("cpu", "1")}, sized(nil, nil), `pods "p" is forbidden: maximum cpu usage per Container is 1.  No limit is specified`},
		"ratio": {corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: list("cpu", "2")}, sized(list("cpu", "1"), list("cpu", "3")),
			`pods "p" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000`},
		"largest ratio": {corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: list("memory", "2")},
			sized(list("memory", "9007199254740992"), list("memory", "18014398509481984")), ""},
		"ratio a byte too large": {corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: list("memory", "2")},
			sized(list("memory", "9007199254740992"), list("memory", "18014398509481985")),
			`pods "p" is forbidden: memory max limit to request ratio per Container is 2, but provided ratio is 2.000000`},
		"several": {corev1.LimitRangeItem{Type: "Container", Min: list("cpu", "1", "memory", "1Gi")}, sized(list("cpu", "10m", "memory", "1Mi"), nil),
			`pods "p" is forbidden: [minimum cpu usage per Container is 1, but request is 10m, minimum memory usage per Container is 1Gi, but request is 1Mi]`},
		"within": {corev1.LimitRangeItem{Type: "Container", Min: list("cpu", "100m"), Max: list("cpu", "1")}, sized(list("cpu", "1"), list("cpu", "1")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, newLimitRanger(p(test.item)), write{kind: "Pod", resource: "pods", obj: test.pod}); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// A claim that violates a later limit can still lose its finalizers once it is
// being deleted.
func TestLimitRangerIgnoresDeletedClaims(t *testing.T) {
	p := newLimitRanger(config(objectstest.NewMemory().Put(objects.LimitRanges, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "l"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePersistentVolumeClaim, Max: list("storage", "1Gi")}}}})))
	old := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c", Finalizers: []string{"kubernetes.io/pvc-protection"}}}
	old.Spec.Resources.Requests = list("storage", "2Gi")
	freed := old.DeepCopy()
	freed.Finalizers = nil
	update := write{op: admission.Update, kind: "PersistentVolumeClaim", resource: "persistentvolumeclaims", obj: freed, old: old}
	if got := run(t, p, update); got != `persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi` {
		t.Errorf("while the claim is in use: %q", got)
	}
	old.DeletionTimestamp = &metav1.Time{}
	if got := run(t, p, update); got != "" {
		t.Errorf("while the claim is being deleted: %q", got)
	}
}

// quotaStore is a QuotaUpdater over a Memory.
type quotaStore struct {
	mu sync.Mutex
	*objectstest.Memory
}

func (s *quotaStore) Update(_ context.Context, namespace, name string, next func(*corev1.ResourceQuota) (*corev1.ResourceQuota, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.get(namespace, name)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("resourcequotas"), name)
	}
	changed, err := next(q)
	if err == nil && changed != nil {
		s.Put(objects.ResourceQuotas, changed)
	}
	return err
}

func (s *quotaStore) get(namespace, name string) (*corev1.ResourceQuota, bool) {
	return objects.Of[*corev1.ResourceQuota](s.Memory, objects.ResourceQuotas).Get(namespace, name)
}

func quotaOf(name string, hard, used corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
}

func TestResourceQuota(t *testing.T) {
	for name, test := range map[string]struct {
		quota *corev1.ResourceQuota
		pod   *corev1.Pod
		want  string
		used  string
	}{
		"room": {quotaOf("q", list("pods", "2"), list("pods", "1")), pod(nil), "", "pods=2"},
		"full": {quotaOf("q", list("pods", "1", "count/pods", "1"), list("pods", "1", "count/pods", "1")), pod(nil),
			`pods "p" is forbidden: exceeded quota: q, requested: count/pods=1,pods=1, used: count/pods=1,pods=1, limited: count/pods=1,pods=1`, "count/pods=1,pods=1"},
		"compute": {quotaOf("q", list("requests.cpu", "1"), list("requests.cpu", "750m")), sized(list("cpu", "500m"), nil),
			`pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=750m, limited: requests.cpu=1`, "requests.cpu=750m"},
		"left out": {quotaOf("q", list("limits.cpu", "1", "requests.memory", "1Gi"), list("limits.cpu", "0", "requests.memory", "0")), pod(nil),
			`pods "p" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c`, "limits.cpu=0,requests.memory=0"},
		"the pod's own resources": {quotaOf("q", list("requests.memory", "1Gi"), list("requests.memory", "0")), pod(func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "512Mi")}
		}), "", "requests.memory=512Mi"},
		"not counted yet": {func() *corev1.ResourceQuota { q := quotaOf("q", list("pods", "2"), nil); q.Status.Hard = nil; return q }(), pod(nil),
			`pods "p" is forbidden: status unknown for quota: q, resources: pods`, ""},
		"out of scope": {quotaOf("q", list("pods", "0"), list("pods", "0"), corev1.ResourceQuotaScopeNotBestEffort), pod(nil), "", "pods=0"},
		"not limited":  {quotaOf("q", list("services", "0"), list("services", "0")), pod(nil), "", "services=0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &quotaStore{Memory: objectstest.NewMemory().Put(objects.ResourceQuotas, test.quota)}
			c := config(s.Memory)
			c.QuotaUpdater = s
			if got := run(t, newResourceQuota(c), write{kind: "Pod", resource: "pods", obj: test.pod}); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			q, _ := s.get("web", "q")
			if got := describeList(q.Status.Used); got != test.used {
				t.Errorf("used %s, want %s", got, test.used)
			}
		})
	}
}

// An update that brings a pod into the scope of a quota uses it, and one that
// leaves it there does not use it twice.
func TestUpdateIntoScopeOfQuota(t *testing.T) {
	running, limited := sized(list("cpu", "500m"), nil), sized(list("cpu", "500m"), nil)
	limited.Spec.ActiveDeadlineSeconds = new(int64(60))
	longer := limited.DeepCopy()
	longer.Spec.ActiveDeadlineSeconds = new(int64(30))
	const exceeded = `pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=0, limited: requests.cpu=100m`
	for name, test := range map[string]struct {
		hard     string
		obj, old *corev1.Pod
		want     string
		used     string
	}{
		"comes into the scope":       {"1", limited, running, "", "requests.cpu=500m"},
		"comes into a full scope":    {"100m", limited, running, exceeded, "requests.cpu=0"},
		"stays in the scope":         {"100m", longer, limited, "", "requests.cpu=0"},
		"was never there":            {"100m", running, running, "", "requests.cpu=0"},
		"leaves, for the controller": {"100m", running, limited, "", "requests.cpu=0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &quotaStore{Memory: objectstest.NewMemory().Put(objects.ResourceQuotas,
				quotaOf("q", list("requests.cpu", test.hard), list("requests.cpu", "0"), corev1.ResourceQuotaScopeTerminating))}
			c := config(s.Memory)
			c.QuotaUpdater = s
			w := write{op: admission.Update, kind: "Pod", resource: "pods", obj: test.obj, old: test.old}
			if got := run(t, newResourceQuota(c), w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			q, _ := s.get("web", "q")
			if got := describeList(q.Status.Used); got != test.used {
				t.Errorf("used %s, want %s", got, test.used)
			}
		})
	}
}

// The devices of a claim count as the extended resource that they provide.
func TestQuotaOfDevices(t *testing.T) {
	quota := quotaOf("q", list("requests.example.com/gpu", "4"), list("requests.example.com/gpu", "2"))
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}
	s := &quotaStore{Memory: objectstest.NewMemory().Put(objects.ResourceQuotas, quota).Put(objects.DeviceClasses, class)}
	c := config(s.Memory)
	c.QuotaUpdater = s
	p := newResourceQuota(c)
	claim := func(devices int64) write {
		return write{kind: "ResourceClaim", resource: "resource.k8s.io/resourceclaims", obj: &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "gpus"},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: devices}},
			}}},
		}}
	}
	const want = `resourceclaims.resource.k8s.io "gpus" is forbidden: exceeded quota: q, requested: requests.example.com/gpu=3, used: requests.example.com/gpu=2, limited: requests.example.com/gpu=4`
	if got := run(t, p, claim(3)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := run(t, p, claim(2)); got != "" {
		t.Errorf("what the quota has room for is refused: %s", got)
	}
}

// quotaServer is the plugin of one API server of several on a store.
func quotaServer(t *testing.T, s store.Store) (admission.Interface, *watchcache.Cache) {
	t.Helper()
	cache := watchcache.New(s, []*resource.Resource{core.ResourceQuotas()})
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-cache.Synced()
	c := config(objectstest.NewMemory())
	c.Objects, c.QuotaUpdater = objects.Cache{Cache: cache}, CacheQuotas{Cache: cache}
	return newResourceQuota(c), cache
}

func TestConcurrentQuotaCharges(t *testing.T) {
	s := mem.New()
	_, cache := quotaServer(t, s)
	q := quotaOf("q", list("pods", "10"), list("pods", "0"))
	q.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
	if _, err := cache.At(objects.ResourceQuotas).Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	one, _ := quotaServer(t, s)
	two, _ := quotaServer(t, s)
	var wg sync.WaitGroup
	admitted := make(chan bool, 40)
	for i := range 40 {
		p := one
		if i%2 == 1 {
			p = two
		}
		wg.Go(func() {
			admitted <- run(t, p, write{kind: "Pod", resource: "pods", obj: pod(nil)}) == ""
		})
	}
	wg.Wait()
	close(admitted)
	n := 0
	for ok := range admitted {
		if ok {
			n++
		}
	}
	e, err := cache.At(objects.ResourceQuotas).Read(t.Context(), "web", "q")
	if err != nil {
		t.Fatal(err)
	}
	if used := describeList(e.Object.(*corev1.ResourceQuota).Status.Used); n != 10 || used != "pods=10" {
		t.Errorf("%d admitted, used %s", n, used)
	}
}

func TestRefusedWriteIsNotCharged(t *testing.T) {
	s := &quotaStore{Memory: objectstest.NewMemory().Put(objects.ResourceQuotas,
		quotaOf("a", list("pods", "10"), list("pods", "0")), quotaOf("b", list("pods", "0"), list("pods", "0")))}
	c := config(s.Memory)
	c.QuotaUpdater = s
	if got := run(t, newResourceQuota(c), write{kind: "Pod", resource: "pods", obj: pod(nil)}); got == "" {
		t.Fatal("admitted")
	}
	q, _ := s.get("web", "a")
	if used := describeList(q.Status.Used); used != "pods=0" {
		t.Errorf("quota a was charged: %s", used)
	}
}
