package apply

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	resources "github.com/coracle-io/coracle/internal/resource"
)

// configurations returns what managers apply in TestNarrowMatchesFullMerge.
func configurations() []string {
	return []string{
		`{"metadata":{"name":"pod-0","labels":{"applied":"yes"}}}`,
		`{"metadata":{"name":"pod-0","labels":{"applied":"no","other":"1"}}}`,
		`{"metadata":{"name":"pod-0","labels":{"a":"1"}}}`,
		`{"metadata":{"name":"pod-0","labels":{"a":"2","applied":"yes"},"annotations":{"a":"1","b":"2"}}}`,
		`{"metadata":{"name":"pod-0","annotations":{"a":"1"}}}`,
		`{"metadata":{"name":"pod-0","labels":null,"annotations":{"a":"1"}}}`,
		`{"metadata":{"name":"pod-0"}}`,
		`{"metadata":{"name":"pod-0"},"spec":{"containers":[{"name":"main","image":"web:2"}]}}`,
		`{"metadata":{"name":"pod-0"},"spec":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"z"}]}}`,
		`{"metadata":{"name":"pod-0"},"spec":{"containers":[{"name":"side","image":"x","ports":[{"containerPort":1}]}]}}`,
		`{"metadata":{"name":"pod-0","finalizers":["x/a"]},"status":{"phase":"Running"}}`,
		`{"metadata":{"name":"pod-0","finalizers":["x/b"]},"spec":null}`,
		`{"metadata":{"name":"pod-0"},"spec":{"unknown":1}}`,
		`{"metadata":{"name":"pod-0","labels":{"applied":7}}}`,
	}
}

// Narrowed applies and updates by several managers have the same result as
// merging the whole object.
func TestNarrowMatchesFullMerge(t *testing.T) {
	k := kind(t, "pods", "")
	tracker, err := newManagers(t).tracker(k)
	if err != nil {
		t.Fatal(err)
	}
	mutations := metaMutations()
	narrow, known := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		live := resources.Object(usual(0))
		k.Version.Default(live)
		if err := tracker.update(k.Version.New(), live, "creator"); err != nil {
			t.Fatal(err)
		}
		live.SetUID("uid")
		for range rapid.IntRange(1, 6).Draw(t, "writes") {
			if rapid.Bool().Draw(t, "plain") {
				next := live.DeepCopyObject().(resources.Object)
				one := rapid.SampledFrom(mutations[:10]).Draw(t, "mutation")
				one.do(next)
				if err := tracker.update(live, next, "writer"); err != nil {
					t.Fatal(err)
				}
				live = next
				continue
			}
			text := rapid.SampledFrom(configurations()).Draw(t, "configuration")
			manager := rapid.SampledFrom([]string{"one", "two", "kubectl"}).Draw(t, "manager")
			force := rapid.Bool().Draw(t, "force")
			if _, ok := tracker.narrow(live, configuration(t, text), manager); ok {
				narrow++
			}
			if o, ok := tracker.overlay(live, configuration(t, text), manager, force); ok {
				if _, ok := tracker.outcomes.get(o.key); ok {
					known++
				}
			}
			want, wantErr := tracker.merge(live.DeepCopyObject().(resources.Object), configuration(t, text), manager, force)
			before := live.DeepCopyObject()
			got, err := tracker.apply(live, configuration(t, text), manager, force)
			if diff := cmp.Diff(before, live); diff != "" {
				t.Fatalf("the live object was changed:\n%s", diff)
			}
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if err != nil {
				continue
			}
			if diff := cmp.Diff(timeless(want.GetManagedFields(), live), timeless(got.GetManagedFields(), live)); diff != "" {
				t.Fatalf("managed fields (-whole +narrowed):\n%s", diff)
			}
			want.SetManagedFields(got.GetManagedFields())
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("result (-whole +narrowed):\n%s", diff)
			}
			live = got
		}
	})
	if narrow == 0 || known == 0 {
		t.Errorf("%d applies were narrowed, and of %d the outcome was known", narrow, known)
	}
}

func configuration(t interface{ Fatal(...any) }, text string) map[string]any {
	made := map[string]any{}
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	made["apiVersion"], made["kind"] = "v1", "Pod"
	return made
}

// BenchmarkApply applies a label to a pod.
func BenchmarkApply(b *testing.B) {
	k := kind(b, "pods", "")
	tracker, err := newManagers(b).tracker(k)
	if err != nil {
		b.Fatal(err)
	}
	live := usual(0)
	if err := tracker.update(&corev1.Pod{TypeMeta: live.TypeMeta}, live, "creator"); err != nil {
		b.Fatal(err)
	}
	live.UID = "uid"
	live.ManagedFields = slices.Clip(live.ManagedFields)
	live.ManagedFields[0].Time = &metav1.Time{}
	for _, how := range []struct {
		name  string
		apply func(resources.Object, map[string]any, string, bool) (resources.Object, error)
	}{
		{"cached", tracker.apply},
		{"narrowed", tracker.applyNarrowly},
		{"whole", func(live resources.Object, c map[string]any, manager string, force bool) (resources.Object, error) {
			return tracker.merge(live.DeepCopyObject().(resources.Object), c, manager, force)
		}},
	} {
		b.Run(how.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := how.apply(live, configuration(b, configurations()[0]), "one", true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
