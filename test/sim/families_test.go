package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// families are objects that own others. They are never changed but by the garbage collector.
type families struct {
	*world
	number  int
	kept    map[string]types.UID // objects that must not be deleted, by name
	orphans []string             // objects whose only owner is gone
}

// replaceOwner deletes the owner of two objects, one of which has another one, and creates it
// again, before the garbage collector sees that.
func (f *families) replaceOwner() {
	f.number++
	api := f.admin.CoreV1().ConfigMaps(namespace)
	create := func(what string, owners ...*v1.ConfigMap) *v1.ConfigMap {
		m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("family-%d-%s", f.number, what)}}
		for _, o := range owners {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
		}
		created, err := api.Create(f.t.Context(), m, metav1.CreateOptions{})
		f.check("create a config map", err)
		return created
	}
	owner, other := create("owner"), create("other")
	only, both := create("only", owner), create("both", owner, other)
	pause(10 * time.Second) // they are seen
	f.faults.setBlind("configmaps")
	f.check("delete a config map", api.Delete(f.t.Context(), owner.Name, metav1.DeleteOptions{}))
	again := create("owner")
	pause(5 * time.Second)
	f.faults.setBlind("")
	f.orphans = append(f.orphans, only.Name)
	for _, m := range []*v1.ConfigMap{again, other, both} {
		f.kept[m.Name] = m.UID
	}
}

// unconverged reports an orphan that is not collected.
func (f *families) unconverged() string {
	for _, name := range f.orphans {
		if _, err := f.admin.CoreV1().ConfigMaps(namespace).Get(f.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("config map %s, whose owner is gone, is collected: %v", name, err)
		}
	}
	return ""
}

// checkEnd checks that no object was deleted that has an owner, or had none.
func (f *families) checkEnd() {
	for _, name := range slices.Sorted(maps.Keys(f.kept)) {
		m, err := f.admin.CoreV1().ConfigMaps(namespace).Get(f.t.Context(), name, metav1.GetOptions{})
		if err != nil || m.UID != f.kept[name] {
			f.t.Errorf("seed %d: config map %s was deleted: %v", f.seed, name, err)
		}
	}
}
