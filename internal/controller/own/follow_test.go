package own_test

import (
	"slices"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller/own"
)

type ledger struct{ told *[]string }

func (l ledger) ObserveCreation(owner types.UID) {
	*l.told = append(*l.told, "created for "+string(owner))
}
func (l ledger) ObserveDeletion(owner, object types.UID) {
	*l.told = append(*l.told, "deleted for "+string(owner))
}

func TestFollower(t *testing.T) {
	pod := func(version, owner, apiVersion, label string, deleted bool) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", ResourceVersion: version, Labels: map[string]string{"app": label}}}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "DaemonSet", Name: owner, UID: types.UID(owner), Controller: new(true)}}
		}
		if deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return p
	}
	const ours, others = "apps/v1", "example.com/v1"
	for _, c := range []struct {
		about    string
		old, new *v1.Pod
		want     []string
	}{
		{"added", nil, pod("1", "a", ours, "", false), []string{"created for a", "wake a"}},
		{"a resync", pod("1", "a", ours, "", false), pod("1", "a", ours, "", false), nil},
		{"changed", pod("1", "a", ours, "", false), pod("2", "a", ours, "", false), []string{"wake a"}},
		{"being deleted", pod("1", "a", ours, "", false), pod("2", "a", ours, "", true), []string{"deleted for a", "wake a"}},
		{"gone", pod("1", "a", ours, "", false), nil, []string{"deleted for a", "wake a"}},
		{"handed over", pod("1", "a", ours, "", false), pod("2", "b", ours, "", false), []string{"wake a", "wake b"}},
		{"released", pod("1", "a", ours, "", false), pod("2", "", "", "", false), []string{"wake a", "orphan"}},
		{"an orphan", nil, pod("1", "", "", "", false), []string{"orphan"}},
		{"an orphan with a new label", pod("1", "", "", "x", false), pod("2", "", "", "y", false), []string{"orphan"}},
		{"an orphan with a new status", pod("1", "", "", "x", false), pod("2", "", "", "x", false), nil},
		{"of a kind of the same name in another group", nil, pod("1", "a", others, "", false), nil},
	} {
		t.Run(c.about, func(t *testing.T) {
			var got []string
			f := own.Follower[*v1.Pod]{
				Kind:     apps.SchemeGroupVersion.WithKind("DaemonSet"),
				Wake:     func(owner cache.ObjectName) { got = append(got, "wake "+owner.Name) },
				Orphaned: func(*v1.Pod) { got = append(got, "orphan") },
				Ledger:   ledger{&got},
			}
			f.Changed(c.old, c.new)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
