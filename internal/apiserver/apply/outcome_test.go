package apply

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	resources "github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// managers returns managers of the built-in kinds.
func newManagers(t testing.TB) *Managers {
	t.Helper()
	documents, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	return New(documents.Schemas)
}

// kind is how the API server speaks of a plural's main version.
func kind(t testing.TB, plural, subresource string) registry.ManagedKind {
	t.Helper()
	for _, r := range all.All() {
		if r.Plural == plural {
			return registry.ManagedKind{Resource: r, Version: r.Hub(), Subresource: subresource}
		}
	}
	t.Fatalf("no resource %s", plural)
	return registry.ManagedKind{}
}

// mutation changes an object in one of a few ways.
type mutation struct {
	name string
	do   func(resources.Object)
}

func metaMutations() (made []mutation) {
	add := func(name string, do func(resources.Object)) { made = append(made, mutation{name, do}) }
	for _, key := range []string{"a", "b"} {
		for _, v := range []string{"1", "2"} {
			add("label "+key+"="+v, func(o resources.Object) { o.SetLabels(with(o.GetLabels(), key, v)) })
			add("annotation "+key+"="+v, func(o resources.Object) { o.SetAnnotations(with(o.GetAnnotations(), key, v)) })
		}
		add("no label "+key, func(o resources.Object) { l := o.GetLabels(); delete(l, key); o.SetLabels(l) })
	}
	add("labels {}", func(o resources.Object) { o.SetLabels(map[string]string{}) })
	add("finalizers", func(o resources.Object) { o.SetFinalizers([]string{"x/a", "x/b"}) })
	add("other finalizers", func(o resources.Object) { o.SetFinalizers([]string{"x/b"}) })
	add("the same finalizer twice", func(o resources.Object) { o.SetFinalizers([]string{"x/b", "x/b"}) })
	add("owner", func(o resources.Object) {
		o.SetOwnerReferences([]metav1.OwnerReference{{UID: "u1", Name: "n", Kind: "K", APIVersion: "v1"}})
	})
	add("other owner", func(o resources.Object) {
		o.SetOwnerReferences([]metav1.OwnerReference{{UID: "u2", Name: "n", Kind: "K", APIVersion: "v1"}})
	})
	add("two owners", func(o resources.Object) {
		yes := true
		o.SetOwnerReferences([]metav1.OwnerReference{{UID: "u1", Controller: &yes}, {UID: "u2"}})
	})
	add("resource version", func(o resources.Object) { o.SetResourceVersion(o.GetResourceVersion() + "1") })
	add("reset managers", func(o resources.Object) { o.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) })
	add("no managers given", func(o resources.Object) { o.SetManagedFields(nil) })
	add("unreadable managers", func(o resources.Object) {
		m := slices.Clone(o.GetManagedFields())
		if len(m) > 0 {
			m[0].FieldsV1 = metav1.NewFieldsV1(`{"nonsense":{}}`)
		}
		o.SetManagedFields(m)
	})
	return made
}

func with(m map[string]string, key, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = v
	return m
}

func podSpecMutations(spec func(resources.Object) *corev1.PodSpec) (made []mutation) {
	add := func(name string, do func(*corev1.PodSpec)) {
		made = append(made, mutation{name, func(o resources.Object) { do(spec(o)) }})
	}
	container := func(s *corev1.PodSpec) *corev1.Container {
		if len(s.Containers) == 0 {
			s.Containers = append(s.Containers, corev1.Container{Name: "c0"})
		}
		return &s.Containers[0]
	}
	for _, v := range []string{"1", "2"} {
		add("image "+v, func(s *corev1.PodSpec) { container(s).Image = v })
		add("second container "+v, func(s *corev1.PodSpec) {
			container(s)
			s.Containers = append(s.Containers[:1], corev1.Container{Name: "c" + v, Image: v})
		})
		add("env "+v, func(s *corev1.PodSpec) { container(s).Env = []corev1.EnvVar{{Name: "E", Value: v}, {Name: "F"}} })
		add("request "+v, func(s *corev1.PodSpec) {
			container(s).Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(v), "memory": resource.MustParse("1Gi")}
		})
		add("command "+v, func(s *corev1.PodSpec) { container(s).Command = []string{"sh", v} })
		add("node "+v, func(s *corev1.PodSpec) { s.NodeName = v })
		add("selector "+v, func(s *corev1.PodSpec) { s.NodeSelector = with(s.NodeSelector, v, v) })
		add("toleration "+v, func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{Key: v}} })
		add("volume "+v, func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v" + v, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		})
		add("probe "+v, func(s *corev1.PodSpec) {
			container(s).LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: v, Port: intstr.FromString(v)}}}
		})
	}
	add("the same request in other words", func(s *corev1.PodSpec) {
		container(s).Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("1024Mi")}
	})
	add("pull secrets", func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}, {Name: "t"}} })
	add("a nameless pull secret", func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{}} })
	add("probe of a port", func(s *corev1.PodSpec) {
		container(s).LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	})
	add("no containers", func(s *corev1.PodSpec) { s.Containers = nil })
	add("no containers but a list", func(s *corev1.PodSpec) { s.Containers = []corev1.Container{} })
	add("containers the other way round", func(s *corev1.PodSpec) { slices.Reverse(s.Containers) })
	add("ports", func(s *corev1.PodSpec) {
		container(s).Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 80, Protocol: "UDP"}}
	})
	add("a port twice", func(s *corev1.PodSpec) {
		container(s).Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80, Protocol: "TCP"}}
	})
	add("other ports", func(s *corev1.PodSpec) {
		container(s).Ports = []corev1.ContainerPort{{ContainerPort: 81, Protocol: "TCP"}}
	})
	add("empty security context", func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{} })
	add("security context", func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64)} })
	add("spread", func(s *corev1.PodSpec) {
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: "DoNotSchedule", LabelSelector: &metav1.LabelSelector{}}}
	})
	return made
}

// TestOutcomesAreTheMergings writes objects again and again, by a few managers
// and in a few ways, and compares what is remembered with what the merging says.
func TestOutcomesAreTheMergings(t *testing.T) {
	podSpec := podSpecMutations(func(o resources.Object) *corev1.PodSpec { return &o.(*corev1.Pod).Spec })
	template := podSpecMutations(func(o resources.Object) *corev1.PodSpec { return &o.(*appsv1.Deployment).Spec.Template.Spec })
	statuses := []mutation{
		{"phase", func(o resources.Object) { o.(*corev1.Pod).Status.Phase = "Running" }},
		{"started", func(o resources.Object) { now := metav1.Unix(1e9, 0); o.(*corev1.Pod).Status.StartTime = &now }},
		{"zero start", func(o resources.Object) { o.(*corev1.Pod).Status.StartTime = &metav1.Time{} }},
		{"ready", func(o resources.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "Other"}}
		}},
		{"not ready", func(o resources.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: "False", LastTransitionTime: metav1.Unix(1e9, 0)}}
		}},
		{"addresses", func(o resources.Object) {
			o.(*corev1.Pod).Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
		}},
	}
	for _, tt := range []struct {
		plural, subresource string
		mutations           []mutation
	}{
		{"pods", "", slices.Concat(metaMutations(), podSpec, statuses)},
		{"pods", "status", slices.Concat(metaMutations(), podSpec[:4], statuses)},
		{"deployments", "", slices.Concat(metaMutations(), template)},
	} {
		t.Run(tt.plural+"/"+tt.subresource, func(t *testing.T) {
			m := newManagers(t)
			k := kind(t, tt.plural, tt.subresource)
			remembering, err := m.tracker(k)
			if err != nil {
				t.Fatal(err)
			}
			if remembering.shape == nil {
				t.Fatal("the kind cannot be walked")
			}
			known := 0
			rapid.Check(t, func(t *rapid.T) { known += checkWrites(t, k, remembering, tt.mutations) })
			if known == 0 {
				t.Error("no outcome was ever known")
			}
			var unknown []string
			opaques(remembering.shape, k.Resource.Plural, map[*shape]bool{}, &unknown)
			if len(unknown) > 0 {
				t.Errorf("differences in these fields are always left to the merging: %v", unknown)
			}
			t.Logf("%d writes had a known outcome", known)
		})
	}
}

// opaques finds what cannot be walked.
func opaques(s *shape, path string, seen map[*shape]bool, found *[]string) {
	if s.form == opaque {
		*found = append(*found, path)
	}
	if seen[s] {
		return
	}
	seen[s] = true
	for _, f := range s.fields {
		opaques(f.shape, path+"."+f.entry.JsonName, seen, found)
	}
	if s.items != nil {
		opaques(s.items, path+"[]", seen, found)
	}
}

// checkWrites makes a few writes, and returns how many outcomes were known.
func checkWrites(t *rapid.T, k registry.ManagedKind, remembering *tracker, mutations []mutation) (known int) {
	live := k.Resource.Hub().New()
	for i := range rapid.IntRange(1, 4).Draw(t, "writes") {
		next := live.DeepCopyObject().(resources.Object)
		for range rapid.IntRange(0, 3).Draw(t, "mutations") {
			one := rapid.IntRange(0, len(mutations)-1).Draw(t, "mutation")
			t.Logf("write %d: %s", i, mutations[one].name)
			mutations[one].do(next)
		}
		manager := rapid.SampledFrom([]string{"one", "two", ""}).Draw(t, "manager")
		if w, ok := remembering.describe(live, next, manager); ok {
			if _, ok := remembering.outcomes.get(w.key); ok {
				known++
			}
		}
		merged := next.DeepCopyObject().(resources.Object)
		merged.SetManagedFields(next.GetManagedFields())
		updated, wantErr := remembering.fields.Update(live, merged, manager)
		err := remembering.update(live, next, manager)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil {
			return known
		}
		want := updated.(metav1.Object).GetManagedFields()
		if diff := cmp.Diff(timeless(want, live), timeless(next.GetManagedFields(), live)); diff != "" {
			t.Fatalf("managed fields (-merging +remembered):\n%s", diff)
		}
		next.SetUID("uid")
		for j := range next.GetManagedFields() {
			// Stored objects have whole seconds; older entries come first.
			next.GetManagedFields()[j].Time = &metav1.Time{Time: time.Unix(int64(1e9+i), 0)}
		}
		live = next
	}
	return known
}

// timeless renders managed fields with their times as old, new or none. Their
// order depends on the second that it is.
func timeless(entries []metav1.ManagedFieldsEntry, live resources.Object) (lines []string) {
	if !slices.IsSortedFunc(entries, order) {
		lines = append(lines, "not in order")
	}
	for _, e := range entries {
		age := "new"
		if e.Time == nil {
			age = "none"
		}
		for _, old := range live.GetManagedFields() {
			if e.Time != nil && old.Time != nil && e.Time.Equal(old.Time) {
				age = "old"
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %s", e.Manager, e.Operation, e.APIVersion, e.Subresource, age, e.FieldsV1.GetRawString()))
	}
	slices.Sort(lines)
	return lines
}

// usual is a pod as benchmarks make them.
func usual(i int) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Namespace: "default", Labels: map[string]string{"app": "web", "n": fmt.Sprint(i)}},
		Spec: corev1.PodSpec{
			RestartPolicy: "Always", DNSPolicy: "ClusterFirst", SchedulerName: "default-scheduler",
			SecurityContext: &corev1.PodSecurityContext{}, EnableServiceLinks: new(bool), TerminationGracePeriodSeconds: new(int64),
			Tolerations: []corev1.Toleration{{Key: "a", Operator: "Exists"}},
			Containers: []corev1.Container{{
				Name: "main", Image: "web:1", ImagePullPolicy: "IfNotPresent", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
				Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}},
				Env:   []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("128Mi")},
				},
			}},
		},
	}
}

// BenchmarkUpdate tracks the fields of pods of one template: as they are
// created, and as one label of theirs is changed.
func BenchmarkUpdate(b *testing.B) {
	m, k := newManagers(b), kind(b, "pods", "")
	tracker, err := m.tracker(k)
	if err != nil {
		b.Fatal(err)
	}
	live := usual(0)
	if err := m.Update(k, nil, live, "creator"); err != nil {
		b.Fatal(err)
	}
	live.UID = "uid"
	empty := k.Resource.Hub().New()
	for _, how := range []struct {
		name   string
		update func(live, obj resources.Object, manager string) error
	}{
		{"remembered", tracker.update},
		{"merging", func(live, obj resources.Object, manager string) error {
			_, err := tracker.fields.Update(live, obj, manager)
			return err
		}},
	} {
		run := func(name string, live resources.Object, make func(i int) resources.Object) {
			b.Run(name+"/"+how.name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := how.update(live, make(i), "client"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		created, labelled := usual(1), live.DeepCopy()
		run("create", empty, func(int) resources.Object { created.ManagedFields = nil; return created })
		run("label", live, func(i int) resources.Object {
			labelled.Labels["touched"], labelled.ManagedFields = fmt.Sprint(i), live.ManagedFields
			return labelled
		})
	}
}

// TestOutcomesAreKeptWithinBounds keeps those of objects with many fields.
func TestOutcomesAreKeptWithinBounds(t *testing.T) {
	var kept outcomes
	for i := range 10 * maxOutcomes {
		fields := &metav1.FieldsV1{}
		fields.SetRawBytes(make([]byte, i*largeOutcome/(5*maxOutcomes)))
		key := outcomeKey{byte(i), byte(i >> 8)}
		kept.put(key, outcome{{entry: metav1.ManagedFieldsEntry{Manager: "m", FieldsV1: fields}}})
		if _, ok := kept.get(key); ok != (len(fields.GetRawBytes()) < largeOutcome) {
			t.Fatalf("%d bytes: kept %v", len(fields.GetRawBytes()), ok)
		}
		bytes := 0
		for _, made := range kept.young {
			bytes += made.size()
		}
		if bytes != kept.bytes || bytes > maxOutcomeBytes || len(kept.young) > maxOutcomes {
			t.Fatalf("%d bytes of %d outcomes are kept, counted %d", bytes, len(kept.young), kept.bytes)
		}
	}
}
