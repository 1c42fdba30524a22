package admission

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

func config(m *objectstest.Memory) *Config {
	return &Config{Objects: m, Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer(), Clock: clock.RealClock{}}
}

// write describes one request.
type write struct {
	op       admission.Operation
	kind     string // "Pod"
	resource string // "pods", "pods/status", "apps/deployments"
	name     string
	obj, old runtime.Object
	user     user.Info
	dryRun   bool
}

func (w write) attributes() admission.Attributes {
	parts := strings.Split(w.resource, "/")
	gvr := schema.GroupVersionResource{Version: "v1", Resource: parts[0]}
	sub := ""
	if strings.Contains(parts[0], ".") {
		gvr.Group, gvr.Resource, parts = parts[0], parts[1], parts[1:]
	}
	if len(parts) > 1 {
		sub = parts[1]
	}
	namespace := ""
	for _, o := range []runtime.Object{w.obj, w.old} {
		if m, ok := o.(metav1.Object); ok && namespace == "" {
			namespace = m.GetNamespace()
			if w.name == "" {
				w.name = m.GetName()
			}
		}
	}
	if w.op == "" {
		w.op = admission.Create
	}
	return admission.NewAttributesRecord(w.obj, w.old, schema.GroupVersionKind{Group: gvr.Group, Version: "v1", Kind: w.kind},
		namespace, w.name, gvr, sub, w.op, nil, w.dryRun, w.user)
}

// run passes a write through one plugin, as the chain does.
func run(t *testing.T, p admission.Interface, w write) string {
	t.Helper()
	a := w.attributes()
	if !p.Handles(a.GetOperation()) {
		return ""
	}
	if m, ok := p.(admission.MutationInterface); ok {
		if err := m.Admit(t.Context(), a, nil); err != nil {
			return err.Error()
		}
	}
	if v, ok := p.(admission.ValidationInterface); ok {
		if err := v.Validate(t.Context(), a, nil); err != nil {
			return err.Error()
		}
	}
	return ""
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	if change != nil {
		change(p)
	}
	return p
}

func namespace(name string, phase corev1.NamespacePhase, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NamespaceStatus{Phase: phase}}
}

func TestPluginsByFlag(t *testing.T) {
	c := config(objectstest.NewMemory())
	c.Enable, c.Disable = []string{"NamespaceExists"}, []string{"ServiceAccount", "LimitRanger"}
	chain, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	names := chain.Plugins()
	if slices.Contains(names, "ServiceAccount") || !slices.Contains(names, "NamespaceExists") || !slices.Contains(names, "Priority") {
		t.Error(names)
	}
	for _, bad := range []Config{{Enable: []string{"Nonsense"}}, {Enable: []string{"Priority"}, Disable: []string{"Priority"}}} {
		bad.Objects = c.Objects
		if _, err := New(&bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// TestEnabledPluginsRun enables each plugin that --enable-admission-plugins
// accepts, and checks that it runs.
func TestEnabledPluginsRun(t *testing.T) {
	c := config(objectstest.NewMemory())
	c.Enable, c.QuotaUpdater = Names(), CacheQuotas{}
	c.Configured = map[string]Configuration{
		"EventRateLimit":     {eventLimits: []eventLimit{{Type: serverLimit, QPS: 1, Burst: 1}}},
		"ImagePolicyWebhook": {imagePolicy: &imagePolicy{}},
	}
	c.Extensions = Extensions(t.Context(), c.Objects, nil, nil, nil)
	chain, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := chain.Plugins(); !slices.Equal(got, Names()) {
		t.Errorf("%v run, want %v", got, Names())
	}
}

// TestPluginsNeedConfigurations checks that a plugin that cannot run without a
// configuration is refused.
func TestPluginsNeedConfigurations(t *testing.T) {
	for plugin, want := range map[string]string{
		"EventRateLimit":     `couldn't init admission plugin "EventRateLimit": limits: Invalid value: null: must not be empty`,
		"ImagePolicyWebhook": `couldn't init admission plugin "ImagePolicyWebhook": no config specified`,
	} {
		c := config(objectstest.NewMemory())
		c.Enable = []string{plugin}
		if _, err := New(c); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", plugin, err, want)
		}
	}
}

func TestAlwaysPullImages(t *testing.T) {
	pod := func(image string, policy corev1.PullPolicy) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: image, ImagePullPolicy: policy}}
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, policy
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: policy}}}}
		})
	}
	for name, test := range map[string]struct {
		w    write
		want corev1.PullPolicy
	}{
		"create":                  {write{resource: "pods", obj: pod("a", corev1.PullNever)}, corev1.PullAlways},
		"update with a new image": {write{op: admission.Update, resource: "pods", obj: pod("b", corev1.PullNever), old: pod("a", corev1.PullNever)}, corev1.PullAlways},
		"update without one":      {write{op: admission.Update, resource: "pods", obj: pod("a", corev1.PullNever), old: pod("a", corev1.PullNever)}, corev1.PullNever},
		"status":                  {write{op: admission.Update, resource: "pods/status", obj: pod("b", corev1.PullNever), old: pod("a", corev1.PullNever)}, corev1.PullNever},
	} {
		if got := run(t, alwaysPullImages{}, test.w); got != "" {
			t.Errorf("%s: %s", name, got)
		}
		spec := test.w.obj.(*corev1.Pod).Spec
		for _, got := range []corev1.PullPolicy{spec.InitContainers[0].ImagePullPolicy, spec.Containers[0].ImagePullPolicy, spec.Volumes[0].Image.PullPolicy} {
			if got != test.want {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
		}
	}
	changed := write{kind: "Pod", resource: "pods", obj: pod("a", corev1.PullIfNotPresent)}
	err := alwaysPullImages{}.Validate(t.Context(), changed.attributes(), nil)
	for _, path := range []string{"spec.initContainers[0].imagePullPolicy", "spec.containers[0].imagePullPolicy", "spec.volumes[0].image.pullPolicy"} {
		if err == nil || !strings.Contains(err.Error(), path+`: Unsupported value: "IfNotPresent": supported values: "Always"`) {
			t.Errorf("%v does not name %s", err, path)
		}
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	p := newNamespaceLifecycle(config(objectstest.NewMemory().Put(objects.Namespaces,
		namespace("web", corev1.NamespaceActive, nil), namespace("going", corev1.NamespaceTerminating, nil))))
	in := func(ns string) *corev1.Pod { return pod(func(p *corev1.Pod) { p.Namespace = ns }) }
	for name, test := range map[string]struct {
		w    write
		want string
	}{
		"exists":                {write{kind: "Pod", resource: "pods", obj: in("web")}, ""},
		"missing":               {write{kind: "Pod", resource: "pods", obj: in("none")}, `namespaces "none" not found`},
		"terminating":           {write{kind: "Pod", resource: "pods", obj: in("going")}, `pods "p" is forbidden: unable to create new content in namespace going because it is being terminated`},
		"update in terminating": {write{op: admission.Update, kind: "Pod", resource: "pods", obj: in("going"), old: in("going")}, ""},
		"update in missing":     {write{op: admission.Update, kind: "Pod", resource: "pods", obj: in("none"), old: in("none")}, ""},
		"delete in missing":     {write{op: admission.Delete, kind: "Pod", resource: "pods", old: in("none")}, ""},
		"delete default":        {write{op: admission.Delete, kind: "Namespace", resource: "namespaces", name: "default"}, `namespaces "default" is forbidden: this namespace may not be deleted`},
		"delete another":        {write{op: admission.Delete, kind: "Namespace", resource: "namespaces", name: "web"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, p, test.w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
