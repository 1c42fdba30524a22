package volume

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
)

// The metrics tell what the pods of the node need and have, and how often it was
// mounted and unmounted. Pods cannot make names of drivers up.
func TestVolumesAreMeasured(t *testing.T) {
	disk, server := &socketDisk{}, &api{path: "/mnt/disk", owner: "uid"}
	if err := disk.MkdirAll(server.path, 0o755); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: server, Claims: server, Operations: NewOperations(registry)}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: disk, Mounter: disk, Unmounted: v.Unmounted})
	ready, waits := podWith(nil, everyKind()...), podWith(nil,
		v1.Volume{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		v1.Volume{Name: "made-up", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "made.up"}}},
		v1.Volume{Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "example.com/model:1"}}},
	)
	waits.ObjectMeta = metav1.ObjectMeta{UID: "waits", Namespace: "default"}
	registry.MustRegister(&Counts{Volumes: v, Pods: func() []*v1.Pod { return []*v1.Pod{ready, waits} }})
	for range 2 { // the second time, nothing is to be done
		if _, _, err := v.SetUp(t.Context(), ready, Facts{}); err != nil {
			t.Fatal(err)
		}
	}
	server.away, server.err = true, errors.New("connection refused")
	if _, _, err := v.SetUp(t.Context(), waits, Facts{}); err == nil {
		t.Fatal("a claim was mounted without the API server")
	}
	const total = `
# HELP volume_manager_total_volumes [ALPHA] Number of volumes in Volume Manager
# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{plugin_name="kubernetes.io/configmap",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/configmap",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/csi",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/host-path",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/host-path",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/local-volume",state="actual_state_of_world"} 2
volume_manager_total_volumes{plugin_name="kubernetes.io/local-volume",state="desired_state_of_world"} 2
volume_manager_total_volumes{plugin_name="kubernetes.io/persistent-claim",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="desired_state_of_world"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(total), "volume_manager_total_volumes"); err != nil {
		t.Error(err)
	}
	operations := func() map[string]uint64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, f := range families {
			if f.GetName() != "storage_operation_duration_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				var labels []string // migrated, operation_name, status, volume_plugin
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				got[strings.Join(labels, " ")] = m.GetHistogram().GetSampleCount()
			}
		}
		return got
	}
	got := operations()
	for _, plugin := range []string{"configmap", "secret", "empty-dir", "host-path"} {
		if n := got["false volume_mount success kubernetes.io/"+plugin]; n != 1 {
			t.Errorf("%d mounts of %s, want 1", n, plugin)
		}
	}
	if n, failed := got["false volume_mount success kubernetes.io/local-volume"], got["false volume_mount fail-unknown kubernetes.io/persistent-claim"]; n != 2 || failed != 1 {
		t.Errorf("%d claims were mounted and %d were not, want 2 and 1", n, failed)
	}
	if err := v.TearDown(t.Context(), ready.UID); err != nil {
		t.Fatal(err)
	}
	if n := operations()["false volume_unmount success kubernetes.io/secret"]; n != 1 {
		t.Errorf("%d secrets were unmounted, want 1", n)
	}
}

// The plugin of a mount is in its path.
func TestPluginOfMount(t *testing.T) {
	for point, want := range map[string]string{
		"/k/pods/uid/volumes/kubernetes.io~secret/s":  "kubernetes.io/secret",
		"/k/pods/uid/volume-subpaths/s/main/0":        "",
		"/k/pods/uid2/volumes/kubernetes.io~secret/s": "",
	} {
		if got := pluginAt("/k/pods/uid", point); got != want {
			t.Errorf("%s: %q, want %q", point, got, want)
		}
	}
}
