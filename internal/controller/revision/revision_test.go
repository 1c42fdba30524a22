package revision

import (
	"fmt"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/costtest"
)

// A revision that another version of Kubernetes has stored in another form remains the
// current one, so that the pods are not restarted.
func TestStoredInAnotherForm(t *testing.T) {
	labels := map[string]string{"app": "db"}
	set := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: v1.PodSpec{
			Containers:    []v1.Container{{Name: "c", Image: "db:1", ImagePullPolicy: v1.PullIfNotPresent}},
			RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSClusterFirst, SchedulerName: "default-scheduler",
		},
	}
	for name, stored := range map[string]string{
		"creationTimestamp": `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"db"}},"spec":{"containers":[{"image":"db:1","imagePullPolicy":"IfNotPresent","name":"c","resources":{}}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler"}}}}`,
		"without defaults":  `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"image":"db:1","name":"c","resources":{}}]}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			older := &apps.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, apps.SchemeGroupVersion.WithKind("StatefulSet"))}},
				Data:       runtime.RawExtension{Raw: []byte(stored)}, Revision: 1,
			}
			kube := fake.NewSimpleClientset(older)
			h := &History{Label: HashLabel, Kube: kube, Owner: set, Kind: apps.SchemeGroupVersion.WithKind("StatefulSet"), Template: &template}
			for image, want := range map[string]string{"db:1": older.Name, "db:2": ""} {
				template.Spec.Containers[0].Image = image
				got, _, err := h.Current(t.Context(), []*apps.ControllerRevision{older}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if want == "" && got.Revision != 2 || want != "" && got.Name != want {
					t.Errorf("%s: %s with number %d, want %q", image, got.Name, got.Revision, want)
				}
			}
		})
	}
}

// A negative limit retains all revisions, as does none. Revisions in use do not count.
func TestTruncate(t *testing.T) {
	for limit, want := range map[int32]int{-2: 5, 0: 1, 2: 3, 10: 5} {
		kube := fake.NewClientset()
		h := &History{Kube: kube}
		var all []*apps.ControllerRevision
		for i := range 5 {
			r := &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("db-", i)}, Revision: int64(i + 1)}
			if _, err := kube.AppsV1().ControllerRevisions("default").Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		if err := h.Truncate(t.Context(), all, &limit, map[string]bool{"db-0": true}); err != nil {
			t.Fatal(err)
		}
		left, err := kube.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != want || left.Items[0].Name != "db-0" {
			t.Errorf("limit %d: %d revisions are left, want %d; error %v", limit, len(left.Items), want, err)
		}
	}
}

// TestRevisionWithAQuantityOutOfRange checks that a revision that a user wrote
// cannot keep a controller busy.
func TestRevisionWithAQuantityOutOfRange(t *testing.T) {
	r := &apps.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"spec":{"Overhead":{"cpu":"1e-900000000"}}}}}`)}}
	if _, err := Template(r); err == nil || !strings.Contains(err.Error(), `spec.template.spec.Overhead[cpu]: the quantity "1e-900000000" is out of range`) {
		t.Errorf("%v", err)
	}
}

// An owner has the revisions that it controls and the orphans that it selects. What others
// control is not even looked at.
func TestList(t *testing.T) {
	owner := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
	app := map[string]string{"app": "db"}
	list := func(others int) (names []string, cost uint64) {
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &apps.ControllerRevision{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		if err := workload.IndexByController(&controller.Env{}, informer); err != nil {
			t.Fatal(err)
		}
		add := func(namespace, name string, labels map[string]string, number int64, controlledBy types.UID) {
			r := &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Revision: number}
			if controlledBy != "" {
				r.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "x", UID: controlledBy, Controller: new(true)}}
			}
			if err := informer.GetIndexer().Add(r); err != nil {
				t.Fatal(err)
			}
		}
		add("default", "second", app, 2, "db")
		add("default", "first", app, 1, "db")
		add("default", "not-selected", nil, 1, "db")
		add("default", "orphan-of-others", map[string]string{"app": "web"}, 1, "")
		add("elsewhere", "other-namespace", app, 1, "db")
		for i := range others {
			add("default", fmt.Sprint("other-", i), app, 1, types.UID(fmt.Sprint("other-", i)))
		}
		history := &History{Revisions: informer, Owner: owner, Selector: &metav1.LabelSelector{MatchLabels: app}}
		cost = costtest.Of(t, func() {
			found, err := history.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range found {
				names = append(names, r.Name)
			}
		}).Bytes
		return names, cost
	}
	few, _ := list(0)
	if got := strings.Join(few, " "); got != "first second" {
		t.Errorf("the owner has %q", got)
	}
	const others, pointer = 20000, 16 // a list of all of them would have as many interfaces
	if many, cost := list(others); len(many) != len(few) || cost > others*pointer/2 {
		t.Errorf("with %d revisions of others, the owner has %q, which costs %d bytes", others, many, cost)
	}
}

// A revision whose adoption is seen while the owner looks for its revisions is not missed.
func TestAdoptedMeanwhile(t *testing.T) {
	owner := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
	app := map[string]string{"app": "db"}
	orphan := &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first", Labels: app}, Revision: 1}
	adopted := orphan.DeepCopy()
	adopted.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &apps.ControllerRevision{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := workload.IndexByController(&controller.Env{}, informer); err != nil {
		t.Fatal(err)
	}
	if err := informer.GetIndexer().Add(orphan); err != nil {
		t.Fatal(err)
	}
	history := &History{Owner: owner, Selector: &metav1.LabelSelector{MatchLabels: app}, Revisions: &controllertest.Changing{
		SharedIndexInformer: informer,
		Change: func(content cache.Indexer) {
			if err := content.Update(adopted); err != nil {
				t.Error(err)
			}
		},
	}}
	found, err := history.List(t.Context())
	if err != nil || len(found) != 1 || found[0] != adopted {
		t.Errorf("the owner has %v: %v", found, err)
	}
}
