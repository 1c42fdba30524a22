package csi

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
)

func TestDriversAreShownInTheAPI(t *testing.T) {
	b := newBench(t, csiDriver())
	b.driver.Most, b.driver.Topology = 7, map[string]string{"topology.test/zone": "z1"}
	v := b.volumes(b.files)
	object, err := b.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := object.Spec.Drivers[0]
	if d.Name != driverName || d.NodeID != "node-1" || !slices.Equal(d.TopologyKeys, []string{"topology.test/zone"}) || *d.Allocatable.Count != 7 {
		t.Errorf("driver: %+v", d)
	}
	if owner := object.OwnerReferences[0]; owner.Kind != "Node" || owner.Name != nodeName || owner.UID != "node" {
		t.Errorf("owner: %+v", owner)
	}
	node, _ := b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if node.Labels["topology.test/zone"] != "z1" || node.Annotations[nodeIDs] != `{"dir.csi.test":"node-1"}` {
		t.Errorf("node: %+v", node.ObjectMeta)
	}
	b.driver.Most = 3
	v.Drivers().ask(t.Context(), driverName)
	object, _ = b.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if *object.Spec.Drivers[0].Allocatable.Count != 3 {
		t.Errorf("driver: %+v", object.Spec.Drivers[0])
	}
	b.driver.Topology = map[string]string{"topology.test/zone": "z2"}
	if err := v.Drivers().Register(t.Context(), b.plugin()); err == nil || !strings.Contains(err.Error(), "detected topology value collision") {
		t.Errorf("another zone: %v", err)
	}
	other := b.plugin()
	other.Endpoint = "/elsewhere"
	v.Drivers().Deregister(t.Context(), other)
	if _, err := v.drivers.endpoint(driverName); err != nil {
		t.Errorf("a driver of this name at another endpoint: %v", err)
	}
	v.Drivers().Deregister(t.Context(), b.plugin())
	object, _ = b.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	node, _ = b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if len(object.Spec.Drivers) > 0 || node.Annotations[nodeIDs] != "" {
		t.Errorf("the driver is gone: %+v, %+v", object.Spec, node.Annotations)
	}
}

// replaceNode deletes the Node object, and creates another of its name.
func (b *bench) replaceNode(uid types.UID) {
	b.Helper()
	nodes := b.api.CoreV1().Nodes()
	if err := nodes.Delete(b.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	node, err := nodes.Create(b.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: uid}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.mu.Lock()
	b.node = node
	b.mu.Unlock()
}

// A Node object that was deleted and registered again shows the drivers as well. The CSINode
// object of the earlier one goes with it.
func TestDriversAreShownForTheNextNode(t *testing.T) {
	b := newBench(t, csiDriver())
	b.driver.Topology = map[string]string{"topology.test/zone": "z1"}
	v := b.volumes(b.files)
	objects := b.api.StorageV1().CSINodes()
	before, err := objects.Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before.Spec.Drivers = append(before.Spec.Drivers, storagev1.CSINodeDriver{Name: "gone.test", NodeID: "x"})
	if _, err := objects.Update(t.Context(), before, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if due := v.drivers.due(); len(due) > 0 {
		t.Errorf("to be shown again before the node is replaced are %q", due)
	}
	b.replaceNode("next")
	if due := v.drivers.due(); !slices.Equal(due, []string{driverName}) {
		t.Errorf("to be shown again are %q", due)
	}
	v.drivers.ask(t.Context(), driverName)
	if due := v.drivers.due(); len(due) > 0 {
		t.Errorf("to be shown again after that are %q", due)
	}
	object, err := objects.Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owners := object.OwnerReferences; len(owners) != 1 || owners[0].UID != "next" || len(object.Spec.Drivers) != 1 || object.Spec.Drivers[0].Name != driverName {
		t.Errorf("owners %+v, drivers %+v", owners, object.Spec.Drivers)
	}
	node, err := b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil || node.Labels["topology.test/zone"] != "z1" || node.Annotations[nodeIDs] != `{"dir.csi.test":"node-1"}` {
		t.Errorf("node %+v, %v", node, err)
	}
}

// The CSINode object of a node without drivers is that of the newest Node object.
func TestOwnerOfCSINode(t *testing.T) {
	of := func(uids ...types.UID) *storagev1.CSINode {
		object := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
		for _, uid := range uids {
			object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: uid})
		}
		object.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "kept.test", NodeID: "x"}}
		return object
	}
	for name, test := range map[string]struct {
		object *storagev1.CSINode
		kept   bool
	}{
		"of this node":                    {of("node"), true},
		"of an earlier node":              {of("earlier"), false},
		"of this and of an earlier node":  {of("earlier", "node"), true},
		"of nobody, by hand or by a tool": {of(), true},
	} {
		b := newBench(t, csiDriver(), test.object)
		v := b.volumes(b.files)
		v.Drivers().Deregister(t.Context(), b.plugin())
		if err := v.drivers.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		object, err := b.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil || len(object.Spec.Drivers) == 1 != test.kept {
			t.Errorf("%s: drivers %+v, %v", name, object.Spec.Drivers, err)
		}
		b.replaceNode("next")
		for range 2 {
			if err := v.drivers.ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if object, err = b.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if owners := object.OwnerReferences; len(owners) > 0 && owners[0].UID != "next" {
			t.Errorf("%s: the owner is %s after the node was replaced", name, owners[0].UID)
		}
	}
}

// Stray files of a driver beside its volumes, and an annotation that is not a
// JSON object, do not prevent registrations and mounts.
func TestStrayFilesAndAnnotations(t *testing.T) {
	b := newBench(t, csiDriver())
	b.node.Annotations = map[string]string{nodeIDs: "null"}
	if _, err := b.api.CoreV1().Nodes().Update(t.Context(), b.node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	v := b.volumes(b.files)
	node, err := b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil || node.Annotations[nodeIDs] != `{"dir.csi.test":"node-1"}` {
		t.Errorf("annotations: %v, %v", node.Annotations, err)
	}
	dir := filepath.Join(v.stagesDir(), driverName)
	if err := b.files.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.files.WriteFile(filepath.Join(dir, "stray"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if staged, err := v.staged(); err != nil || len(staged) > 0 {
		t.Errorf("staged = %+v, %v; a file is no volume", staged, err)
	}
}

func TestValidate(t *testing.T) {
	r := New(Config{}).Drivers()
	for _, c := range []struct {
		name, version string
		ok            bool
	}{
		{driverName, "1.0.0", true}, {driverName, "0.3.0", false}, {driverName, "2.0.0", false}, {driverName, "x", false},
		{"../../etc", "1.0.0", false}, {"..", "1.0.0", false}, {"volumeDevices", "1.0.0", false}, {strings.Repeat("a", 64), "1.0.0", false},
	} {
		if err := r.Validate(pluginwatcher.Plugin{Name: c.name, Endpoint: "/x", Versions: []string{c.version}}); (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.name, c.version, err)
		}
	}
}

func TestHighestVersion(t *testing.T) {
	for _, c := range []struct{ versions, want string }{
		{"v1.0.0", "1.0.0"}, {"0.3.0", ""}, {"0.2.0 v0.3.0", ""}, {"0.2.0 v1.0.0", "1.0.0"}, {"v1.2.3 v0.3.0 2.0.1", "1.2.3"},
		{"v1.2.3 4.9.12 boo v0.3.0 2.0.1", "1.2.3"}, {"1.1.0 1.2.0 1.0.0", "1.2.0"}, {"4.9.12 2.0.1", ""}, {"", ""}, {"var boo foo", ""},
	} {
		got, err := highestVersion(strings.Fields(c.versions))
		if (err == nil) != (c.want != "") || err == nil && got.String() != c.want {
			t.Errorf("%q: %v, %v", c.versions, got, err)
		}
	}
}
