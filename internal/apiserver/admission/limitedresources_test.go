package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// limitedResources is a configuration by which CPU, gold storage and pods of the
// class important need quotas.
const limitedResources = `
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- {resource: pods, matchContains: [cpu, fpga]}
- {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [important]}]}
- {resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/requests.storage]}
- {apiGroup: apps, resource: deployments, matchContains: [count/deployments.apps]}
`

func TestLimitedResources(t *testing.T) {
	configured, err := Configure("ResourceQuota", []byte(limitedResources))
	if err != nil {
		t.Fatal(err)
	}
	important := func(requests corev1.ResourceList) *corev1.Pod {
		p := sized(requests, nil)
		p.Spec.PriorityClassName = "important"
		return p
	}
	claim := func(class string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c"}}
		c.Spec.StorageClassName, c.Spec.Resources.Requests = new(class), list("storage", "1Gi")
		return c
	}
	scoped := quotaOf("q", list("pods", "9"), list("pods", "0"))
	scoped.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"important"}}}}
	terminating := quotaOf("q", list("requests.cpu", "9"), list("requests.cpu", "0"), corev1.ResourceQuotaScopeTerminating)
	const (
		noCPU  = `pods "p" is forbidden: insufficient quota to consume: cpu,requests.cpu`
		noFPGA = `pods "p" is forbidden: insufficient quota to consume: requests.example.com/fpga`
		noGold = `persistentvolumeclaims "c" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage`
	)
	for name, test := range map[string]struct {
		quota *corev1.ResourceQuota
		w     write
		want  string
	}{
		"nothing limited":              {nil, write{resource: "pods", obj: sized(list("memory", "1Mi"), nil)}, ""},
		"no quota":                     {nil, write{resource: "pods", obj: sized(list("cpu", "1"), nil)}, noCPU},
		"a part of the name":           {nil, write{resource: "pods", obj: sized(list("example.com/fpga", "1"), nil)}, noFPGA},
		"a quota of another resource":  {quotaOf("q", list("pods", "9"), list("pods", "0")), write{resource: "pods", obj: sized(list("cpu", "1"), nil)}, noCPU},
		"a quota of one of the names":  {quotaOf("q", list("cpu", "9"), list("cpu", "0")), write{resource: "pods", obj: sized(list("cpu", "1"), nil)}, `pods "p" is forbidden: insufficient quota to consume: requests.cpu`},
		"a quota":                      {quotaOf("q", list("cpu", "9", "requests.cpu", "9"), list("cpu", "0", "requests.cpu", "0")), write{resource: "pods", obj: sized(list("cpu", "1"), nil)}, ""},
		"a quota of other pods":        {terminating, write{resource: "pods", obj: sized(list("cpu", "1"), nil)}, noCPU},
		"a pod that uses nothing more": {nil, write{op: admission.Update, resource: "pods", obj: sized(list("cpu", "1"), nil), old: sized(list("cpu", "1"), nil)}, ""},
		"a resize":                     {nil, write{op: admission.Update, resource: "pods/resize", obj: sized(list("cpu", "2"), nil), old: sized(list("cpu", "1"), nil)}, noCPU},
		"a scope without a quota":      {nil, write{resource: "pods", obj: important(nil)}, "insufficient quota to match these scopes: [{PriorityClass In [important]}]"},
		"a scope with a quota":         {scoped, write{resource: "pods", obj: important(nil)}, ""},
		"a scope that is not limited":  {nil, write{resource: "pods", obj: pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "usual" })}, ""},
		"storage of a class":           {nil, write{resource: "persistentvolumeclaims", obj: claim("gold")}, noGold},
		"storage with a quota":         {quotaOf("q", list("gold.storageclass.storage.k8s.io/requests.storage", "5Gi"), list("gold.storageclass.storage.k8s.io/requests.storage", "0")), write{resource: "persistentvolumeclaims", obj: claim("gold")}, ""},
		"another kind":                 {nil, write{resource: "configmaps", obj: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "m"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &quotaStore{Memory: objectstest.NewMemory()}
			if test.quota != nil {
				s.Put(objects.ResourceQuotas, test.quota)
			}
			c := config(s.Memory)
			c.QuotaUpdater, c.Configured = s, map[string]Configuration{"ResourceQuota": configured}
			if got := run(t, newResourceQuota(c), test.w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
