package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// clusterWithNodes returns the settings of a cluster whose first node is called alpha.
func clusterWithNodes(count int) host.Settings {
	s := host.Settings{Nodes: count, Options: cluster.Options{Name: "a", DataDir: "/data", NodeName: "alpha", BindAddress: "0.0.0.0"}}
	s.Complete(0, "alpha", "/bundle", "/config")
	return s
}

func TestListNodes(t *testing.T) {
	s := clusterWithNodes(4)
	s.SetNodeState(3, cluster.NodeLeaving)
	s.SetNodeState(4, cluster.NodeRemoved)
	ready := v1.NodeStatus{
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		Addresses:  []v1.NodeAddress{{Type: v1.NodeHostName, Address: "alpha"}, {Type: v1.NodeInternalIP, Address: "10.9.0.1"}, {Type: v1.NodeInternalIP, Address: "fd00::1"}},
	}
	registered := map[string]*v1.Node{
		"alpha": {
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Status: ready,
			Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}},
		},
		"alpha-3": {}, "elsewhere": {},
	}
	list := listNodes(s, true, registered)
	want := nodeList{
		{Name: "alpha", Number: 1, Status: "Ready", Address: "10.9.0.1", Labels: map[string]string{"a": "b"}, Taints: []string{"k=v:NoExecute"}},
		{Name: "alpha-2", Number: 2, Status: nodeNotRegistered}, {Name: "alpha-3", Number: 3, Status: nodeRemoving},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	registered["alpha-2"] = &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "R", Message: "M"}}}}
	var text strings.Builder
	listNodes(s, true, registered).WriteText(&text)
	if got, want := text.String(), "NAME      STATUS     ADDRESS\nalpha     Ready      10.9.0.1\nalpha-2   NotReady   -\nalpha-3   Removing   -\n"; got != want {
		t.Errorf("the text is\n%s, want\n%s", got, want)
	}
	for _, n := range listNodes(s, false, nil)[:2] {
		if n.Status != nodeStopped {
			t.Errorf("of a stopped cluster: %+v", n)
		}
	}
}

func TestPlaceOfANewNode(t *testing.T) {
	none := cluster.EachNode{}
	for _, tt := range []struct {
		what    string
		prepare func(s *host.Settings)
		node    cluster.EachNode
		number  int
		nodes   int
		wrong   string
	}{
		{"without a name", func(*host.Settings) {}, none, 3, 3, ""},
		{"with a name", func(*host.Settings) {}, cluster.EachNode{Name: "x"}, 3, 3, ""},
		{"that is there", func(*host.Settings) {}, cluster.EachNode{Name: "alpha-2"}, 2, 2, ""},
		{"after an interruption", func(s *host.Settings) { s.SetNodeState(2, cluster.NodeAdding) }, none, 2, 2, ""},
		{"another one after an interruption", func(s *host.Settings) { s.SetNodeState(2, cluster.NodeAdding) }, cluster.EachNode{Name: "x"}, 3, 3, ""},
		{"while one leaves", func(s *host.Settings) { s.SetNodeState(2, cluster.NodeLeaving) }, none, 3, 2, ""},
		{"the one that leaves", func(s *host.Settings) { s.SetNodeState(2, cluster.NodeLeaving) }, cluster.EachNode{Name: "alpha-2"}, 0, 1, "finish it with coracle node remove --name=a alpha-2"},
		{"after one has left", func(s *host.Settings) { s.SetNodeState(2, cluster.NodeRemoved) }, none, 2, 2, ""},
		{"without a node", func(s *host.Settings) { s.Nodes = 0 }, none, 0, 0, "coracle up --name=a --nodes=1"},
	} {
		s := clusterWithNodes(2)
		tt.prepare(&s)
		number, err := place(&s, tt.node)
		if number != tt.number || s.Nodes != tt.nodes || (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: node %d of %d, %v; want %d of %d, %q", tt.what, number, s.Nodes, err, tt.number, tt.nodes, tt.wrong)
		}
		if again, err := place(&s, tt.node); again != number && tt.wrong == "" {
			t.Errorf("%s: repeated it is node %d, %v; want %d again", tt.what, again, err, number)
		}
	}
}

func podOn(node, name string, owner ...metav1.OwnerReference) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u-1", OwnerReferences: owner}, Spec: v1.PodSpec{NodeName: node}}
}

// drained is a client whose API server has the node m-2, and removes pods at once when
// they are evicted.
func drained(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m-2"}})...)
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1"}}}}
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) { // the fake ignores fields
		found, err := client.Tracker().List(v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithKind("Pod"), "")
		if err != nil {
			return true, nil, err
		}
		pods, wanted := found.(*v1.PodList), action.(clienttesting.ListAction).GetListRestrictions().Fields
		pods.Items = slices.DeleteFunc(pods.Items, func(p v1.Pod) bool { return !wanted.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) })
		return true, pods, nil
	})
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		return true, nil, client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace, eviction.Name)
	})
	return client
}

func TestDrainBeforeRemoval(t *testing.T) {
	rec := host.Record{Occupied: host.Occupied{Name: "a", DataDir: t.TempDir()}}
	r := nodeRemoval{node: "m-2", timeout: 3 * time.Minute, out: &strings.Builder{}}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o", Controller: new(true)}

	client := drained(podOn("m-2", "web", owner), podOn("m-2", "bare"))
	err := r.empty(t.Context(), rec, client, 2)
	if err == nil || !strings.Contains(err.Error(), "declare no controller (use --force to override): default/bare") {
		t.Errorf("a pod that nothing would create elsewhere: %v", err)
	}
	if node, err := client.CoreV1().Nodes().Get(t.Context(), "m-2", metav1.GetOptions{}); err != nil || node.Spec.Unschedulable {
		t.Errorf("the node was cordoned: %v, %v", node, err)
	}

	client = drained(podOn("m-2", "web", owner), podOn("m-3", "other"))
	if err := r.empty(t.Context(), rec, client, 2); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is there: %v", err)
	}
	if _, err := client.CoreV1().Pods("default").Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Errorf("the pod of another node: %v", err)
	}
	if node, err := client.CoreV1().Nodes().Get(t.Context(), "m-2", metav1.GetOptions{}); err != nil || !node.Spec.Unschedulable {
		t.Errorf("the node was not cordoned: %v, %v", node, err)
	}

	volume := filepath.Join(rec.DataDir, "nodes/2/local-volumes/pvc-1")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.empty(t.Context(), rec, drained(), 2); err == nil || !strings.Contains(err.Error(), "node m-2 has the data of volumes (pvc-1)") {
		t.Errorf("with a volume: %v", err)
	}
	if err := r.empty(t.Context(), rec, fake.NewClientset(), 3); err != nil {
		t.Errorf("a node that was never registered: %v", err)
	}
}

// Only pods of the node are deleted, and one that is gone meanwhile is no error.
func TestDeletePods(t *testing.T) {
	client := fake.NewClientset(podOn("m-2", "a"), podOn("m-2", "b"))
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if got := action.(clienttesting.ListAction).GetListRestrictions().Fields.String(); got != "spec.nodeName=m-2" {
			t.Errorf("pods are listed by %q", got)
		}
		return false, nil, nil
	})
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		d := action.(clienttesting.DeleteActionImpl)
		if o := d.GetDeleteOptions(); o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil || *o.Preconditions.UID != "u-1" {
			t.Errorf("pod %s is deleted with %+v", d.GetName(), o)
		}
		if d.GetName() == "b" {
			return true, nil, apierrors.NewNotFound(v1.Resource("pods"), "b")
		}
		return false, nil, nil
	})
	if err := deletePods(t.Context(), client, "m-2"); err != nil {
		t.Error(err)
	}
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	if err := deletePods(t.Context(), client, "m-2"); err == nil || !strings.Contains(err.Error(), "delete pod b of namespace default: no") {
		t.Error(err)
	}
}

// A process of a cluster learns of nodes that come and go, and keeps those that it knows
// while the settings cannot be read.
func TestPresentNodes(t *testing.T) {
	s := clusterWithNodes(2)
	s.Options.DataDir = t.TempDir()
	present := presentNodes(s.Options.DataDir)
	if names := present(); len(names) != 0 {
		t.Errorf("without settings: %v", names)
	}
	check := func(want map[int]string) {
		t.Helper()
		for range 2 {
			names := present()
			if !maps.Equal(names, want) {
				t.Errorf("nodes %v, want %v", names, want)
			}
			clear(names) // which is the caller's
		}
	}
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	check(map[int]string{1: "alpha", 2: "alpha-2"})
	s.SetNodeState(2, cluster.NodeLeaving)
	s.AddNode(cluster.EachNode{Name: "x"})
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	check(map[int]string{1: "alpha", 3: "x"})
	if err := os.WriteFile(host.SettingsFile(s.Options.DataDir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(map[int]string{1: "alpha", 3: "x"})
}
