package deployment

import (
	"context"
	"testing"

	apps "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestWritesUntilSeen(t *testing.T) {
	w := &writes{replicas: map[controller.Key]map[types.UID]written{}}
	web := controller.Key{Namespace: "default", Name: "web"}
	at := func(name string, generation int64) *apps.ReplicaSet {
		rs := replicaSetOf(name, "1/1", 0)
		rs.UID, rs.Generation = types.UID(name), generation
		rs.OwnerReferences = []metav1.OwnerReference{{UID: "d", Controller: new(true)}}
		return rs
	}
	stored := map[string]*apps.ReplicaSet{"b": at("b", 5)}
	get := func(_ context.Context, name string, _ metav1.GetOptions) (*apps.ReplicaSet, error) {
		if rs := stored[name]; rs != nil {
			return rs, nil
		}
		return nil, apierrors.NewNotFound(apps.Resource("replicasets"), name)
	}
	seen := func(cached ...*apps.ReplicaSet) bool {
		t.Helper()
		ok, err := w.seen(t.Context(), web, "d", cached, get)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	if !seen(at("a", 1)) {
		t.Error("stale before the first write")
	}
	w.wrote(web, at("a", 2))
	w.wrote(web, at("a", 3))
	w.wrote(web, at("b", 5))
	if seen(at("a", 2), at("b", 5)) || seen(at("a", 3), at("b", 4)) || seen(at("a", 4)) {
		t.Error("an older or missing ReplicaSet is not stale")
	}
	stored["b"].OwnerReferences = nil
	if !seen(at("a", 4)) || !seen(at("a", 2)) {
		t.Error("stale, although the cache has shown the writes and one ReplicaSet was released")
	}
	w.wrote(web, at("a", 9))
	w.forget(web)
	if len(w.replicas) != 0 {
		t.Errorf("remembers %v", w.replicas)
	}
}

// A Deployment that is being deleted does not wait for a ReplicaSet that it has written and that it
// no longer selects: nobody releases it.
func TestDeletedWithUnselectedReplicaSet(t *testing.T) {
	now := metav1.Now()
	d := &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d", DeletionTimestamp: &now, Finalizers: []string{"example.com/hold"}},
		Spec:       apps.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	rs := replicaSetOf("web-1", "1/1", 0)
	rs.Namespace, rs.UID, rs.Labels = "default", "rs", map[string]string{"app": "another"}
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)}
	cluster := controllertest.New(t, d, rs)
	built, err := newController(cluster.Env, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := built.(*deployments)
	c.writes.wrote(controller.Key{Namespace: "default", Name: "web"}, rs)
	if err := c.sync(t.Context(), d); err != nil {
		t.Error(err)
	}
}
