package bootstrap

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	_ "github.com/coracle-io/coracle/internal/bubble"
)

// fresh returns a writer with the default objects.
func fresh(t *testing.T) *memoryWriter {
	t.Helper()
	w := &memoryWriter{Memory: objectstest.NewMemory()}
	for _, want := range flowControl() {
		want.obj.SetGeneration(1)
		w.Put(want.storagePath, want.obj)
	}
	return w
}

func TestMaintainFlowControl(t *testing.T) {
	annotate := func(value string) func(*flowcontrolv1.PriorityLevelConfiguration) {
		return func(l *flowcontrolv1.PriorityLevelConfiguration) {
			if l.Annotations = nil; value != "" {
				l.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: value}
			}
		}
	}
	edit := func(l *flowcontrolv1.PriorityLevelConfiguration) {
		l.Spec.Limited = l.Spec.Limited.DeepCopy()
		l.Spec.Limited.NominalConcurrencyShares = ptr.To[int32](7)
	}
	edited := func(l *flowcontrolv1.PriorityLevelConfiguration) { edit(l); l.Generation = 2 }
	for _, test := range []struct {
		name           string
		level          string
		change         []func(*flowcontrolv1.PriorityLevelConfiguration)
		shares         int32
		annotation     string
		updates, drops int
	}{
		{"nothing was changed", "system", nil, 30, "true", 0, 0},
		{"a suggested one that is kept up to date", "system", []func(*flowcontrolv1.PriorityLevelConfiguration){edited}, 30, "true", 1, 0},
		{"a suggested one that users control", "system", []func(*flowcontrolv1.PriorityLevelConfiguration){edited, annotate("false")}, 7, "false", 0, 0},
		{"a suggested one that users changed", "system", []func(*flowcontrolv1.PriorityLevelConfiguration){edited, annotate("")}, 7, "false", 1, 0},
		{"a suggested one without changes", "system", []func(*flowcontrolv1.PriorityLevelConfiguration){edit, annotate("")}, 30, "true", 1, 0},
		{"a mandatory one that users control", "catch-all", []func(*flowcontrolv1.PriorityLevelConfiguration){edited, annotate("false")}, 5, "true", 1, 0},
		{"one of another release", "of-old", nil, 0, "", 0, 1},
		{"one of the users", "of-users", []func(*flowcontrolv1.PriorityLevelConfiguration){annotate("")}, 30, "", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := fresh(t)
			levels := objects.Of[*flowcontrolv1.PriorityLevelConfiguration](w.Memory, objects.PriorityLevels)
			l, ok := levels.Get("", test.level)
			if !ok {
				l, _ = levels.Get("", "system")
			}
			l = l.DeepCopy()
			l.Name = test.level
			for _, change := range test.change {
				change(l)
			}
			w.Put(objects.PriorityLevels, l)
			for range 2 { // the second time, nothing is left to do
				if err := ensure(t.Context(), w.Memory, w, flowControl()); err != nil {
					t.Fatal(err)
				}
				if err := removeUnknown(t.Context(), w.Memory, w); err != nil {
					t.Fatal(err)
				}
			}
			if w.created != 0 || w.updated != test.updates || w.deleted != test.drops {
				t.Errorf("%d created, %d updated, %d deleted, want %d updated, %d deleted", w.created, w.updated, w.deleted, test.updates, test.drops)
			}
			got, ok := levels.Get("", test.level)
			if !ok {
				if test.drops == 0 {
					t.Error("it is gone")
				}
				return
			}
			if shares := *got.Spec.Limited.NominalConcurrencyShares; shares != test.shares || got.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != test.annotation {
				t.Errorf("%d shares and %v, want %d and %q", shares, got.Annotations, test.shares, test.annotation)
			}
		})
	}
}

func TestMaintainSystem(t *testing.T) {
	for _, test := range []struct {
		name, path, namespace string
		deleted               []string
		maintain              func(context.Context, objects.Source, Writer) error
	}{
		{"flow schemas", objects.FlowSchemas, "", []string{"exempt", "service-accounts"}, MaintainFlowControl},
		{"namespaces", objects.Namespaces, "", []string{"kube-node-lease"}, keepSystem},
		{"ConfigMaps", objects.ConfigMaps, "kube-system",
			[]string{"extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"}, keepSystem},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fresh(t)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- test.maintain(ctx, w.Memory, w) }()
				synctest.Wait()
				for _, name := range test.deleted {
					w.Memory.Delete(test.path, test.namespace, name)
				}
				time.Sleep(maintenancePeriod)
				synctest.Wait()
				for _, name := range test.deleted {
					if _, ok := w.Kind(test.path).Get(test.namespace, name); !ok {
						t.Errorf("%s did not come back", name)
					}
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func keepSystem(ctx context.Context, source objects.Source, w Writer) error {
	return MaintainSystem(ctx, source, w, options)
}

// Aggregated API servers learn of authorities that change while the server runs.
func TestMaintainSystemPublishesNewAuthorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t)
		current := options()
		go func() {
			_ = MaintainSystem(t.Context(), w.Memory, w, func() Options { return current })
		}()
		synctest.Wait()
		current.ClientCA = []byte("a, renewed")
		time.Sleep(maintenancePeriod)
		synctest.Wait()
		published, _ := objects.Of[*corev1.ConfigMap](w.Memory, objects.ConfigMaps).Get("kube-system", "extension-apiserver-authentication")
		if published == nil || published.Data["client-ca-file"] != "a, renewed" {
			t.Errorf("published: %v", published)
		}
	})
}
