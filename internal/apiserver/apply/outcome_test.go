package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	resources "github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// newManagers returns Managers of the built-in kinds.
func newManagers(t testing.TB) *Managers {
	t.Helper()
	documents, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	return New(documents.Schemas)
}

// kind returns the ManagedKind of a plural's hub version.
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

// version returns the version of a resource in a group.
func version(r *resources.Resource, group string) *resources.Version {
	return &r.Versions[slices.IndexFunc(r.Versions, func(v resources.Version) bool { return v.Group == group })]
}

// mutation changes an object in one of several ways.
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
	for _, uids := range [][2]types.UID{{"u3", "u1"}, {"u30", "u4"}, {"u5", "u5"}, {"", "u1"}, {"u\"1", "u1"}, {"u 1", "u2"}, {"ü", "u2"}} {
		add(fmt.Sprintf("owners %q", uids), func(o resources.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{UID: uids[0], Name: string(uids[1])}, {UID: uids[1]}})
		})
	}
	for _, text := range [][2]string{
		{`\"uid\":\"`, `\"uid\": \"`}, {`\"uid\"`, `\"\u0075id\"`}, {`"k:`, `"\u006b:`}, {`\"}`, `\" }`},
		{`\"uid\":\"u1\"`, `\"uid\":\"u1\",\"zone\":\"a\"`}, {`\"uid\":\"u1\"`, `\"uid\":1`}, {`\"uid\":\"u1\"`, `\"uid\":\"u2\"`},
	} {
		add("managers with "+text[1], func(o resources.Object) {
			m := slices.Clone(o.GetManagedFields())
			for i := range m {
				if m[i].FieldsV1 != nil {
					m[i].FieldsV1 = metav1.NewFieldsV1(strings.ReplaceAll(m[i].FieldsV1.GetRawString(), text[0], text[1]))
				}
			}
			o.SetManagedFields(m)
		})
	}
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

// Cached outcomes of random writes by several managers equal the outcomes that
// the library computes. eventMutations changes events, whose fields have other
// names in events.k8s.io.
func eventMutations() (made []mutation) {
	add := func(name string, do func(*corev1.Event)) {
		made = append(made, mutation{name, func(o resources.Object) { do(o.(*corev1.Event)) }})
	}
	for _, v := range []string{"1", "2"} {
		add("message "+v, func(e *corev1.Event) { e.Message = v })
		add("object "+v, func(e *corev1.Event) { e.InvolvedObject.Name = v })
		add("source "+v, func(e *corev1.Event) { e.Source.Component = v })
		add("controller "+v, func(e *corev1.Event) { e.ReportingController = v })
		add("related "+v, func(e *corev1.Event) { e.Related = &corev1.ObjectReference{Name: v} })
	}
	add("no message", func(e *corev1.Event) { e.Message = "" })
	add("time", func(e *corev1.Event) { e.EventTime = metav1.MicroTime{Time: time.Unix(1e9, 0)} })
	add("first time", func(e *corev1.Event) { e.FirstTimestamp = metav1.Unix(1e9, 0) })
	add("count", func(e *corev1.Event) { e.Count++ })
	add("series", func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 2} })
	add("no series", func(e *corev1.Event) { e.Series = nil })
	return made
}

func TestOutcomesMatchTheLibrary(t *testing.T) {
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
		{"other addresses", func(o resources.Object) {
			o.(*corev1.Pod).Status.PodIPs = []corev1.PodIP{{IP: "fd00::2"}, {IP: "10.0.0.17"}}
		}},
		{"one address", func(o resources.Object) { o.(*corev1.Pod).Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.17"}} }},
		{"no address", func(o resources.Object) { o.(*corev1.Pod).Status.PodIPs = []corev1.PodIP{{}} }},
	}
	hub := ""
	for _, tt := range []struct {
		plural, group, subresource string
		mutations                  []mutation
	}{
		{"pods", hub, "", slices.Concat(metaMutations(), podSpec, statuses)},
		{"pods", hub, "status", slices.Concat(metaMutations(), podSpec[:4], statuses)},
		{"deployments", hub, "", slices.Concat(metaMutations(), template)},
		{"events", hub, "", slices.Concat(metaMutations(), eventMutations())},
		{"events", "events.k8s.io", "", slices.Concat(metaMutations(), eventMutations())},
	} {
		t.Run(tt.plural+"/"+tt.group+tt.subresource, func(t *testing.T) {
			m := newManagers(t)
			k := kind(t, tt.plural, tt.subresource)
			if tt.group != hub {
				k.Version = version(k.Resource, tt.group)
			}
			cached, err := m.tracker(k)
			if err != nil {
				t.Fatal(err)
			}
			if cached.shape == nil {
				t.Fatal("the kind cannot be walked")
			}
			known := 0
			rapid.Check(t, func(t *rapid.T) { known += checkWrites(t, k, cached, tt.mutations) })
			if known == 0 {
				t.Error("no outcome was ever known")
			}
			var unknown []string
			opaques(cached.shape, k.Resource.Plural, map[*shape]bool{}, &unknown)
			if len(unknown) > 0 {
				t.Errorf("differences in these fields are never cached: %v", unknown)
			}
			t.Logf("%d writes had a known outcome", known)
		})
	}
}

// opaques returns the fields whose shape is not supported.
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

// checkWrites makes some writes, and returns how many outcomes were cached.
func checkWrites(t *rapid.T, k registry.ManagedKind, cached *tracker, mutations []mutation) (known int) {
	live := k.Resource.Hub().New()
	for i := range rapid.IntRange(1, 4).Draw(t, "writes") {
		next := live.DeepCopyObject().(resources.Object)
		for range rapid.IntRange(0, 3).Draw(t, "mutations") {
			one := rapid.IntRange(0, len(mutations)-1).Draw(t, "mutation")
			t.Logf("write %d: %s", i, mutations[one].name)
			mutations[one].do(next)
		}
		manager := rapid.SampledFrom([]string{"one", "two", ""}).Draw(t, "manager")
		if w, ok := cached.describe(live, next, manager); ok {
			if _, ok := cached.outcomes.get(w.key); ok {
				known++
			}
		}
		merged := next.DeepCopyObject().(resources.Object)
		merged.SetManagedFields(next.GetManagedFields())
		updated, wantErr := cached.fields.Update(live, merged, manager)
		err := cached.update(live, next, manager)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil {
			return known
		}
		want := updated.(metav1.Object).GetManagedFields()
		if diff := cmp.Diff(timeless(want, live), timeless(next.GetManagedFields(), live)); diff != "" {
			t.Fatalf("managed fields (-library +cached):\n%s", diff)
		}
		next.SetUID("uid")
		for j := range next.GetManagedFields() {
			// Stored times have whole seconds; older entries come first.
			next.GetManagedFields()[j].Time = &metav1.Time{Time: time.Unix(int64(1e9+i), 0)}
		}
		live = next
	}
	return known
}

// timeless renders managed fields with their times as old, new or none, since
// their order depends on the current second.
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

// usual returns a typical pod of benchmarks.
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

// BenchmarkUpdate tracks the fields of pods of one template: when they are
// created, when one label changes, and when each gets an address.
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
		{"cached", tracker.update},
		{"library", func(live, obj resources.Object, manager string) error {
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
		created, labelled, addressed := usual(1), live.DeepCopy(), live.DeepCopy()
		run("create", empty, func(int) resources.Object { created.ManagedFields = nil; return created })
		run("label", live, func(i int) resources.Object {
			labelled.Labels["touched"], labelled.ManagedFields = fmt.Sprint(i), live.ManagedFields
			return labelled
		})
		run("address", live, func(i int) resources.Object {
			addressed.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", i>>8&255, i&255)}}
			addressed.ManagedFields = live.ManagedFields
			return addressed
		})
	}
}

// BenchmarkUpdateOtherVersion tracks the fields of events that are created in
// another version than the one that is stored.
func BenchmarkUpdateOtherVersion(b *testing.B) {
	m, k := newManagers(b), kind(b, "events", "")
	k.Version = version(k.Resource, "events.k8s.io")
	event := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "pod", UID: "uid"},
		EventTime:      metav1.NowMicro(), Reason: "Scheduled", Action: "Binding", Message: "message", Type: "Normal",
		ReportingController: "scheduler", ReportingInstance: "host",
	}
	b.ReportAllocs()
	for b.Loop() {
		event.ManagedFields = nil
		if err := m.Update(k, nil, event, "client"); err != nil {
			b.Fatal(err)
		}
	}
}

// Pods of one template whose owners and addresses differ have one outcome.
func TestOutcomesServeAllPodsOfATemplate(t *testing.T) {
	m, k := newManagers(t), kind(t, "pods", "status")
	tracker, err := m.tracker(k)
	if err != nil {
		t.Fatal(err)
	}
	created := kind(t, "pods", "")
	keys := map[outcomeKey]bool{}
	for i := range 30 {
		pod := usual(0)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: types.UID(fmt.Sprintf("%08x-owner", 7919*i))}}
		if err := m.Update(created, nil, pod, "controller"); err != nil {
			t.Fatal(err)
		}
		pod.UID = "uid"
		addressed := pod.DeepCopy()
		addressed.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprint("10.0.0.", i)}}
		w, ok := tracker.describe(pod, addressed, "kubelet")
		if !ok {
			t.Fatal("the write is not described")
		}
		keys[w.key] = true
		if err := m.Update(k, pod, addressed, "kubelet"); err != nil {
			t.Fatal(err)
		}
		all := fmt.Sprint(addressed.ManagedFields)
		for _, identity := range []string{string(pod.OwnerReferences[0].UID), addressed.Status.PodIPs[0].IP + `\"`} {
			if !strings.Contains(all, identity) {
				t.Errorf("nobody owns %s: %s", identity, all)
			}
		}
		if unchanged := slices.ContainsFunc(addressed.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.FieldsV1 == pod.ManagedFields[0].FieldsV1 }); i > 0 && !unchanged {
			t.Error("the unchanged managed fields have memory of their own")
		}
	}
	// The address may come before or after the owner in the order of identities.
	if len(keys) > 2 {
		t.Errorf("%d different outcomes for 30 pods", len(keys))
	}
}

// The cache is bounded also for objects with many fields.
func TestOutcomeCacheIsBounded(t *testing.T) {
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
