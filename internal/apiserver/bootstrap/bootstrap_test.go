package bootstrap

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

func options() Options {
	return Options{Served: servedByDefault(), ServiceCIDRs: []string{"10.96.0.0/16"}, ClientCA: []byte("a"), RequestHeaderCA: []byte("b"), Now: time.Unix(0, 0)}
}

func servedByDefault() resource.GroupVersions {
	served, err := runtimeconfig.Serve(all.All(), nil, nil)
	if err != nil {
		panic(err)
	}
	return resource.Served(served)
}

// The default objects equal the objects that upstream's API server creates.
func TestFreshServer(t *testing.T) {
	content, err := os.ReadFile("testdata/objects.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string][]map[string]any
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	all, err := wantedObjects(options())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]any{}
	for _, w := range all {
		encoded, err := json.Marshal(w.obj)
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(encoded, &o); err != nil {
			t.Fatal(err)
		}
		delete(o, "status")
		delete(o["metadata"].(map[string]any), "creationTimestamp")
		got[w.storagePath+" "+w.obj.GetNamespace()+"/"+w.obj.GetName()] = o
	}
	paths := map[string]string{"apiservices": objects.APIServices}
	for resource, list := range golden {
		path := resource
		if p, ok := paths[resource]; ok {
			path = p
		}
		for _, want := range list {
			meta := want["metadata"].(map[string]any)
			namespace, _ := meta["namespace"].(string)
			key := path + " " + namespace + "/" + meta["name"].(string)
			if diff := cmp.Diff(want, got[key]); diff != "" {
				t.Errorf("%s: %s", key, diff)
			}
			delete(got, key)
		}
	}
	maps.DeleteFunc(got, func(key string, _ map[string]any) bool { // one for each group version that is served
		return strings.HasPrefix(key, objects.APIServices+" ")
	})
	if extra := slices.Sorted(maps.Keys(got)); len(extra) != 34 {
		t.Errorf("objects that upstream lacks: %q, want the two config maps, the four of the DNS server's rights, the two of the proxy's, the four of the local volumes', the two of the network policies', the two of the ingress controller's, the two of the address pools', the two of the node controller's towards leases, the two of the service controller's, the two of the storage version migrator's, the two of the storage version garbage collector's, the two of the controller of requests about pools, that of readers of metrics, the four of the controllers of trust bundles and of pod certificate requests, and the one of the API server's towards kubelets", extra)
	}
}

// memoryWriter is a Writer into a Memory that counts writes.
type memoryWriter struct {
	*objectstest.Memory
	mu                        sync.Mutex
	created, updated, deleted int
}

func (w *memoryWriter) Create(_ context.Context, path string, o resource.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.created++
	w.Put(path, o)
	return nil
}

func (w *memoryWriter) Update(_ context.Context, path string, o, _ resource.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.updated++
	w.Put(path, o)
	return nil
}

func (w *memoryWriter) Delete(_ context.Context, path string, o resource.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted++
	w.Memory.Delete(path, o.GetNamespace(), o.GetName())
	return nil
}

func TestReconcile(t *testing.T) {
	w := &memoryWriter{Memory: objectstest.NewMemory()}
	run := func(created, updated, deleted int) {
		t.Helper()
		w.created, w.updated, w.deleted = 0, 0, 0
		if err := Reconcile(t.Context(), w.Memory, w, options()); err != nil {
			t.Fatal(err)
		}
		if w.created != created || w.updated != updated || w.deleted != deleted {
			t.Errorf("%d created, %d updated, %d deleted, want %d, %d, %d", w.created, w.updated, w.deleted, created, updated, deleted)
		}
	}
	all, err := wantedObjects(options())
	if err != nil {
		t.Fatal(err)
	}
	run(len(all), 0, 0)
	run(0, 0, 0)

	roles := objects.Of[*rbacv1.ClusterRole](w.Memory, objects.ClusterRoles)
	node, _ := roles.Get("", nodeRole)
	less := node.DeepCopy()
	less.Rules = append(less.Rules[1:], rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"mine"}, Resources: []string{"things"}})
	w.Put(objects.ClusterRoles, less)
	run(0, 1, 0)
	back, _ := roles.Get("", nodeRole)
	if len(back.Rules) != len(node.Rules)+1 {
		t.Errorf("%d rules, want the defaults and the added one", len(back.Rules))
	}

	protected := node.DeepCopy()
	protected.Rules = nil
	protected.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
	w.Put(objects.ClusterRoles, protected)
	run(0, 0, 0)

	bindings := objects.Of[*rbacv1.ClusterRoleBinding](w.Memory, objects.ClusterRoleBindings)
	b, _ := bindings.Get("", "system:basic-user")
	stripped := b.DeepCopy()
	stripped.Subjects = nil
	w.Put(objects.ClusterRoleBindings, stripped)
	run(0, 1, 0)
	elsewhere := b.DeepCopy()
	elsewhere.RoleRef.Name = "view"
	w.Put(objects.ClusterRoleBindings, elsewhere)
	run(1, 0, 1)
}

func TestInvalidPolicy(t *testing.T) {
	for _, text := range []string{"clusterrole\n", "  get core pods\n", "role a b\n  get core\n", "role a b\n  aggregate x\n", "clusterrolebinding = x robot/y\n"} {
		if _, err := parsePolicy(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
