package admission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// Required anti-affinity is over nodes only; preferred one may be over anything.
func TestLimitPodHardAntiAffinityTopology(t *testing.T) {
	apart := func(keys ...string) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			anti := &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone}},
			}}
			for _, key := range keys {
				anti.RequiredDuringSchedulingIgnoredDuringExecution = append(anti.RequiredDuringSchedulingIgnoredDuringExecution, corev1.PodAffinityTerm{TopologyKey: key})
			}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: anti}
		})
	}
	for name, test := range map[string]struct {
		w    write
		want string
	}{
		"no affinity":    {write{resource: "pods", obj: pod(nil)}, ""},
		"preferred zone": {write{resource: "pods", obj: apart()}, ""},
		"node":           {write{resource: "pods", obj: apart(corev1.LabelHostname)}, ""},
		"zone": {write{resource: "pods", obj: apart(corev1.LabelHostname, corev1.LabelTopologyZone)},
			`pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed`},
		"status": {write{op: admission.Update, resource: "pods/status", obj: apart("zone"), old: apart("zone")}, ""},
	} {
		if got := run(t, limitPodHardAntiAffinityTopology{}, test.w); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// knowsOwners is a resolver of ReplicaSets and Nodes.
type knowsOwners struct{ admission.ObjectInterfaces }

func (knowsOwners) ResourceOf(kind schema.GroupVersionKind) (plural string, namespaced, ok bool) {
	switch kind {
	case schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}:
		return "replicasets", true, true
	case schema.GroupVersionKind{Version: "v1", Kind: "Node"}:
		return "nodes", false, true
	}
	return "", false, false
}

// Owner references are changed by users who may delete the object, and block
// owners whose finalizers they may update.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	owned := func(refs ...metav1.OwnerReference) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.OwnerReferences = refs })
	}
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "1"}
	blocking := set
	blocking.BlockOwnerDeletion = new(true)
	node := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "2", BlockOwnerDeletion: new(true)}
	unknown := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Boat", Name: "b", UID: "3", BlockOwnerDeletion: new(true)}
	const (
		remove, finalizeSet, finalizeNode = "delete pods web/p", "update replicasets/finalizers web/r", "update nodes/finalizers /n"
		forbidden                         = `pods "p" is forbidden: `
		mayNotDelete                      = forbidden + "cannot set an ownerRef on a resource you can't delete: , <nil>"
		mayNotFinalize                    = forbidden + "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
	)
	for name, test := range map[string]struct {
		may         []string
		obj, old    *corev1.Pod
		subresource string
		want        string
	}{
		"new object":                           {nil, owned(set), nil, "", ""},
		"new object that blocks":               {nil, owned(blocking), nil, "", mayNotFinalize},
		"new object that may block":            {[]string{finalizeSet}, owned(blocking), nil, "", ""},
		"owner without a namespace":            {[]string{"update nodes/finalizers web/n"}, owned(node), nil, "", mayNotFinalize},
		"owner without a namespace, permitted": {[]string{finalizeNode}, owned(node), nil, "", ""},
		"one of two":                           {[]string{finalizeSet}, owned(blocking, node), nil, "", mayNotFinalize},
		"unknown kind": {nil, owned(unknown), nil, "",
			forbidden + `cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion example.com/v1 Kind Boat: no matches for kind "Boat" in version "example.com/v1"`},
		"unknown kind, of a user who may block all": {[]string{"update */finalizers /*"}, owned(unknown), nil, "", ""},
		"no change":                {nil, owned(blocking), owned(blocking), "", ""},
		"another owner":            {nil, owned(set), owned(), "", mayNotDelete},
		"another owner, permitted": {[]string{remove}, owned(set), owned(), "", ""},
		"no owner any more":        {nil, owned(), owned(set), "", mayNotDelete},
		"blocks now":               {[]string{remove}, owned(blocking), owned(set), "", mayNotFinalize},
		"blocks no more":           {[]string{remove}, owned(set), owned(blocking), "", ""},
		"status":                   {nil, owned(set), owned(), "status", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(objectstest.NewMemory())
			c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				resource := a.GetResource()
				if a.GetSubresource() != "" {
					resource += "/" + a.GetSubresource()
				}
				if slices.Contains(test.may, fmt.Sprintf("%s %s %s/%s", a.GetVerb(), resource, a.GetNamespace(), a.GetName())) {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			w := write{resource: "pods", obj: test.obj, user: &user.DefaultInfo{Name: "jane"}}
			if test.old != nil {
				w.op, w.old = admission.Update, test.old
			}
			if test.subresource != "" {
				w.resource += "/" + test.subresource
			}
			got := ""
			if err := newOwnerReferencesPermissionEnforcement(c).(admission.ValidationInterface).Validate(t.Context(), w.attributes(), knowsOwners{}); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// annotated returns plugins' objects with a namespace web.
func annotated(annotations map[string]string) *Config {
	ns := namespace("web", corev1.NamespaceActive, nil)
	ns.Annotations = annotations
	return config(objectstest.NewMemory().Put(objects.Namespaces, ns))
}

func TestPodNodeSelector(t *testing.T) {
	const annotation = "scheduler.alpha.kubernetes.io/node-selector"
	for name, test := range map[string]struct {
		annotations map[string]string
		pod, want   map[string]string
		refusal     string
	}{
		"none":           {nil, map[string]string{"a": "b"}, map[string]string{"a": "b"}, ""},
		"empty":          {map[string]string{annotation: ""}, nil, nil, ""},
		"added":          {map[string]string{annotation: "env=dev, disk=ssd"}, map[string]string{"a": "b"}, map[string]string{"a": "b", "env": "dev", "disk": "ssd"}, ""},
		"the same":       {map[string]string{annotation: "env=dev"}, map[string]string{"env": "dev"}, map[string]string{"env": "dev"}, ""},
		"another value":  {map[string]string{annotation: "env=dev"}, map[string]string{"env": "test"}, map[string]string{"env": "test"}, `pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector`},
		"not a selector": {map[string]string{annotation: "env"}, nil, nil, `the annotation scheduler.alpha.kubernetes.io/node-selector of namespace web: invalid selector: [env]`},
	} {
		o := pod(func(p *corev1.Pod) { p.Spec.NodeSelector = test.pod })
		if got := run(t, newPodNodeSelector(annotated(test.annotations)), write{resource: "pods", obj: o}); got != test.refusal {
			t.Errorf("%s: %q, want %q", name, got, test.refusal)
		}
		if diff := cmp.Diff(test.want, o.Spec.NodeSelector); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestConfiguredNodeSelectors checks the cluster's default and the labels that a
// namespace allows, from the configuration of the plugin.
func TestConfiguredNodeSelectors(t *testing.T) {
	const annotation = "scheduler.alpha.kubernetes.io/node-selector"
	const refusal = `pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist`
	for name, test := range map[string]struct {
		file        string
		annotations map[string]string
		pod, want   map[string]string
		refusal     string
	}{
		"default":                  {"clusterDefaultNodeSelector: env=dev", nil, map[string]string{"a": "b"}, map[string]string{"a": "b", "env": "dev"}, ""},
		"of the namespace":         {"clusterDefaultNodeSelector: env=dev", map[string]string{annotation: "env=test"}, nil, map[string]string{"env": "test"}, ""},
		"an empty annotation":      {"clusterDefaultNodeSelector: env=dev", map[string]string{annotation: ""}, nil, nil, ""},
		"conflict":                 {"clusterDefaultNodeSelector: env=dev", nil, map[string]string{"env": "test"}, map[string]string{"env": "test"}, `pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector`},
		"allowed":                  {"web: 'env=dev, disk=ssd'", nil, map[string]string{"env": "dev"}, map[string]string{"env": "dev"}, ""},
		"another label":            {"web: env=dev", nil, map[string]string{"a": "b"}, map[string]string{"a": "b"}, refusal},
		"another value":            {"web: env=dev", nil, map[string]string{"env": "test"}, map[string]string{"env": "test"}, refusal},
		"default is not allowed":   {"{web: env=dev, clusterDefaultNodeSelector: a=b}", nil, nil, map[string]string{"a": "b"}, refusal},
		"labels of another":        {"shop: env=dev", nil, map[string]string{"a": "b"}, map[string]string{"a": "b"}, ""},
		"an empty list allows all": {"web: ''", nil, map[string]string{"a": "b"}, map[string]string{"a": "b"}, ""},
	} {
		configured, err := Configure("PodNodeSelector", []byte("podNodeSelectorPluginConfig:\n  "+test.file))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := annotated(test.annotations)
		c.Configured = map[string]Configuration{"PodNodeSelector": configured}
		o := pod(func(p *corev1.Pod) { p.Spec.NodeSelector = test.pod })
		if got := run(t, newPodNodeSelector(c), write{resource: "pods", obj: o}); got != test.refusal {
			t.Errorf("%s: %q, want %q", name, got, test.refusal)
		}
		if diff := cmp.Diff(test.want, o.Spec.NodeSelector); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestConfiguredTolerations checks the cluster's default and whitelist of
// tolerations, which annotations of the namespace replace.
func TestConfiguredTolerations(t *testing.T) {
	const given, allowed = "scheduler.alpha.kubernetes.io/defaultTolerations", "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
	configured, err := Configure("PodTolerationRestriction", []byte(`
apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
kind: Configuration
default: [{key: cluster, operator: Exists}]
whitelist: [{key: cluster, operator: Exists}, {key: k, operator: Exists}]
`))
	if err != nil {
		t.Fatal(err)
	}
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
	}
	const refusal = `pods "p" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist`
	for name, test := range map[string]struct {
		annotations map[string]string
		op          admission.Operation
		pod, want   []corev1.Toleration
		refusal     string
	}{
		"default":                    {nil, "", []corev1.Toleration{exists("k")}, []corev1.Toleration{exists("k"), exists("cluster")}, ""},
		"not for an update":          {nil, admission.Update, []corev1.Toleration{exists("k")}, []corev1.Toleration{exists("k")}, ""},
		"of the namespace":           {map[string]string{given: `[{"key": "k", "operator": "Exists"}]`}, "", nil, []corev1.Toleration{exists("k")}, ""},
		"no default":                 {map[string]string{given: ""}, "", nil, nil, ""},
		"not allowed":                {nil, "", []corev1.Toleration{exists("other")}, []corev1.Toleration{exists("other"), exists("cluster")}, refusal},
		"allowed by the namespace":   {map[string]string{allowed: ""}, "", []corev1.Toleration{exists("other")}, []corev1.Toleration{exists("other"), exists("cluster")}, ""},
		"a list of the namespace":    {map[string]string{given: "[]", allowed: `[{"key": "other", "operator": "Exists"}]`}, "", []corev1.Toleration{exists("other")}, []corev1.Toleration{exists("other")}, ""},
		"refused by the namespace's": {map[string]string{given: "[]", allowed: `[{"key": "a", "operator": "Exists"}]`}, "", []corev1.Toleration{exists("k")}, []corev1.Toleration{exists("k")}, refusal},
	} {
		c := annotated(test.annotations)
		c.Configured = map[string]Configuration{"PodTolerationRestriction": configured}
		o := pod(func(p *corev1.Pod) { p.Spec.Tolerations = test.pod })
		if got := run(t, newPodTolerationRestriction(c), write{op: test.op, resource: "pods", obj: o}); got != test.refusal {
			t.Errorf("%s: %q, want %q", name, got, test.refusal)
		}
		if diff := cmp.Diff(test.want, o.Spec.Tolerations); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPodTolerationRestriction(t *testing.T) {
	const given, allowed = "scheduler.alpha.kubernetes.io/defaultTolerations", "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
	own := corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v"}
	other := corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}
	pressure := corev1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	const ofNamespace = `[{"key": "other", "operator": "Exists"}]`
	const refusal = `pods "p" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist`
	for name, test := range map[string]struct {
		annotations map[string]string
		op          admission.Operation
		requests    corev1.ResourceList
		pod, want   []corev1.Toleration
		refusal     string
	}{
		"none":                     {nil, "", nil, []corev1.Toleration{own}, []corev1.Toleration{own}, ""},
		"added":                    {map[string]string{given: ofNamespace}, "", nil, []corev1.Toleration{own}, []corev1.Toleration{own, other}, ""},
		"added to none":            {map[string]string{given: ofNamespace}, "", nil, nil, []corev1.Toleration{other}, ""},
		"not added by an update":   {map[string]string{given: ofNamespace}, admission.Update, nil, nil, nil, ""},
		"requests":                 {nil, "", list("cpu", "1"), nil, []corev1.Toleration{pressure}, ""},
		"allowed":                  {map[string]string{allowed: `[{"key": "k", "operator": "Exists"}]`}, "", nil, []corev1.Toleration{own}, []corev1.Toleration{own}, ""},
		"not allowed":              {map[string]string{allowed: `[{"key": "k", "operator": "Exists"}]`}, "", nil, []corev1.Toleration{other}, []corev1.Toleration{other}, refusal},
		"added ones not allowed":   {map[string]string{given: ofNamespace, allowed: `[{"key": "k", "operator": "Exists"}]`}, "", nil, nil, []corev1.Toleration{other}, refusal},
		"an update not allowed":    {map[string]string{allowed: `[{"key": "k", "operator": "Exists"}]`}, admission.Update, nil, []corev1.Toleration{other}, []corev1.Toleration{other}, refusal},
		"an empty list allows all": {map[string]string{allowed: ""}, "", nil, []corev1.Toleration{own}, []corev1.Toleration{own}, ""},
	} {
		o := pod(func(p *corev1.Pod) {
			p.Spec.Tolerations, p.Spec.Containers[0].Resources.Requests = test.pod, test.requests
		})
		if got := run(t, newPodTolerationRestriction(annotated(test.annotations)), write{op: test.op, resource: "pods", obj: o}); got != test.refusal {
			t.Errorf("%s: %q, want %q", name, got, test.refusal)
		}
		if diff := cmp.Diff(test.want, o.Spec.Tolerations); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
