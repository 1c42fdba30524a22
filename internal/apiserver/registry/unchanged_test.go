package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

const configMapKey = "/registry/configmaps/default/x"

// setFrom replaces the data of the config map x, whatever it is.
func setFrom(t *testing.T, g *registrytest.Registry, from string) {
	t.Helper()
	_, _, err := g.Request(t, "update", "", "configmaps", "default", "x").Update(&metav1.UpdateOptions{}, func() (resource.Object, error) {
		return configMap("x", map[string]string{"from": from}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An update that changes nothing writes an object that is stored in another form,
// and only then.
func TestUpdateMigratesStoredForm(t *testing.T) {
	on := mem.New()
	given := configMap("x", map[string]string{"from": "a"})
	given.Namespace, given.UID = "default", "1"
	asJSON, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := on.Create(t.Context(), configMapKey, asJSON, 0); err != nil {
		t.Fatal(err)
	}
	g := registrytest.StartOn(t, on, all.All())
	stored := func() store.KeyValue {
		kv, err := on.Get(t.Context(), configMapKey)
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	setFrom(t, g, "a")
	first := stored()
	if !bytes.HasPrefix(first.Value, []byte("k8s\x00")) {
		t.Errorf("stored as %q", first.Value)
	}
	setFrom(t, g, "a")
	if again := stored(); again.Revision != first.Revision {
		t.Errorf("revision %d, want %d", again.Revision, first.Revision)
	}
}

// unwatched is a store that reports no writes.
type unwatched struct{ store.Store }

func (unwatched) Watch(ctx context.Context, _ string, _ int64) <-chan store.Batch {
	never := make(chan store.Batch)
	go func() {
		<-ctx.Done()
		close(never)
	}()
	return never
}

// An update that seems to change nothing, because the server has not seen the
// write of another one, undoes that write.
func TestUpdateBehindAnotherServer(t *testing.T) {
	on := mem.New()
	ahead := registrytest.StartOn(t, on, all.All())
	create(t, ahead, "", "configmaps", configMap("x", map[string]string{"from": "a"}))
	behind := registrytest.StartOn(t, unwatched{on}, all.All())
	setFrom(t, ahead, "b")
	setFrom(t, behind, "a")
	kv, err := on.Get(t.Context(), configMapKey)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(kv.Value, []byte("\x04from\x12\x01a")) {
		t.Errorf("stored %q", kv.Value)
	}
}
