package csi

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
