package explain

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/supervise"
)

// dryRunOf decides about the pods of a manifest in a cluster of the objects. It
// returns a line for each pod.
func dryRunOf(t *testing.T, manifest string, objects ...runtime.Object) string {
	t.Helper()
	var lines []string
	err := supervise.Run(t.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o := Options{Kubernetes: fake.NewSimpleClientset(objects...)}
		decoded, err := Decode([]byte(manifest))
		if err != nil {
			return err
		}
		a, err := NewAdmission(ctx, o.Kubernetes, "default")
		if err != nil {
			return err
		}
		m, err := a.Manifest(decoded)
		if err != nil {
			return err
		}
		if o.Cluster, err = Load(ctx, o.Kubernetes); err != nil {
			return err
		}
		d, err := Dry(ctx, o, m)
		if err != nil {
			return err
		}
		for _, p := range d.Pods {
			line := fmt.Sprintf("%s on %q", p.Name, p.Node)
			if p.Node == "" {
				line += ": " + p.Message
			}
			lines = append(lines, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

const (
	classes = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
`
	disk = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  local: {path: /disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [b]}]}]}}
---
`
	database = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  ordinals: {start: 3}
  selector: {matchLabels: {app: a}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: a, image: a, volumeMounts: [{name: data, mountPath: /data}]}]}
---
`
	ephemeralPod = `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: a, image: a}]
  volumes:
  - name: scratch
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
---
`
	devices = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: b}
spec: {driver: gpu.example.com, nodeName: b, pool: {name: b, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
---
`
	gpuPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  replicas: 2
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: a, image: a}], resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}
`
)

// A dry run takes the claims, volumes, classes and templates of its file, and
// makes the claims that controllers would make.
func TestDryRunOfAWholeApplication(t *testing.T) {
	for _, test := range []struct{ name, manifest, want string }{
		{"claims of a StatefulSet", classes + disk + database,
			"db-3 on \"b\"\ndb-4 on \"\": 0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."},
		{"a class with the older mark", strings.Replace(classes, "storageclass.", "storageclass.beta.", 1) + disk + ephemeralPod, `p on "b"`},
		{"an ephemeral volume", classes + disk + ephemeralPod, `p on "b"`},
		{"without the volume", classes + ephemeralPod, `p on "": 0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.`},
		{"claims of a template", devices + gpuPods, "train-0 on \"b\"\ntrain-1 on \"\": 0/2 nodes are available: 2 cannot allocate all claims."},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, dryRunOf(t, test.manifest, node("a"), node("b"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Objects that the cluster has are not replaced: a claim that is bound there is
// not bound anew.
func TestDryRunKeepsTheClusterOfToday(t *testing.T) {
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db-3", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "old", StorageClassName: new("local")},
	}
	old := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: v1.PersistentVolumeSpec{
		ClaimRef:     &v1.ObjectReference{Namespace: "default", Name: "data-db-3"},
		NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{expression(v1.LabelHostname, v1.NodeSelectorOpIn, "a")}}},
	}}
	want := "db-3 on \"a\"\ndb-4 on \"b\""
	if diff := cmp.Diff(want, dryRunOf(t, classes+disk+database, node("a"), node("b"), claim, old)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// withClaim mounts claims, each as a volume of its name.
func withClaim(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

func claimOfClass(class string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func boundTo(name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations = name, map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	}
}

func class(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
}

// What keeps pods with volumes off nodes, and what would help.
func TestObstaclesOfVolumes(t *testing.T) {
	const first, now = storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	local, csi := class("local", "kubernetes.io/no-provisioner", first), class("csi", "csi.example.com", first)
	here := func(key string, values ...string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{expression(key, v1.NodeSelectorOpIn, values...)}}}
	}
	elsewhere := csi.DeepCopy()
	elsewhere.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"x"}}}}}
	limited := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: "a", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(0))}}}}}
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		want    []string
	}{
		{"no claim", nil, []string{"VolumeRestrictions: PersistentVolumeClaim default/data does not exist -> create PersistentVolumeClaim data in namespace default"}},
		{"bound at once", []runtime.Object{claimOfClass("now"), class("now", "csi.example.com", now)},
			[]string{"VolumeBinding: PersistentVolumeClaim data is not bound, and its class now does not wait for the scheduler -> create a PersistentVolume of class now with at least 1Gi -> look why the provisioner csi.example.com does not make one"}},
		{"no class", []runtime.Object{claimOfClass("none")},
			[]string{"VolumeBinding: PersistentVolumeClaim data is not bound, and StorageClass none does not exist -> create StorageClass none -> recreate the claim with another storageClassName -> create a PersistentVolume of class none with at least 1Gi"}},
		{"lost", []runtime.Object{claimOfClass("csi", boundTo("pv"), func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost }), csi},
			[]string{"VolumeBinding: PersistentVolumeClaim data is bound to PersistentVolume pv, which does not exist -> restore PersistentVolume pv -> recreate PersistentVolumeClaim data; its data is lost"}},
		{"no volume", []runtime.Object{claimOfClass("local"), local},
			[]string{"VolumeBinding: no free PersistentVolume on the node fits PersistentVolumeClaim data (class local, 1Gi), and the class provisions none -> create a PersistentVolume of class local with at least 1Gi that the node reaches"}},
		{"provisioned elsewhere", []runtime.Object{claimOfClass("csi"), elsewhere},
			[]string{"VolumeBinding: no free PersistentVolume on the node fits PersistentVolumeClaim data (class csi, 1Gi), and the node is not in the allowedTopologies of the class -> create a PersistentVolume of class csi with at least 1Gi that the node reaches -> add the node's topology to the allowedTopologies of StorageClass csi"}},
		{"no capacity", []runtime.Object{claimOfClass("csi"), csi, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}}},
			[]string{"VolumeBinding: no storage of class csi that the node reaches has 1Gi free for PersistentVolumeClaim data -> create a PersistentVolume of class csi with at least 1Gi that the node reaches -> add storage that the provisioner csi.example.com can use -> recreate the claim with a smaller request"}},
		{"the volume is elsewhere", []runtime.Object{claimOfClass("local", boundTo("pv")), local, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{NodeAffinity: here(v1.LabelHostname, "b", "c")}}},
			[]string{"VolumeBinding: PersistentVolume pv is not reachable from the node: it is where kubernetes.io/hostname In b, c"}},
		{"another zone", []runtime.Object{claimOfClass("local", boundTo("pv")), local, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: map[string]string{v1.LabelTopologyZone: "z2__z3"}}}},
			[]string{"VolumeZone: PersistentVolume pv has label topology.kubernetes.io/zone=z2__z3, and the node's is z1"}},
		{"ReadWriteOncePod", []runtime.Object{claimOfClass("local", boundTo("pv"), func(c *v1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		}), local, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}, pod("user", on("a"), withClaim("data"))},
			[]string{"VolumeRestrictions: PersistentVolumeClaim default/data has the access mode ReadWriteOncePod, and pod default/user uses it -> delete pod default/user -> use a claim with the access mode ReadWriteOnce"}},
		{"too many volumes", []runtime.Object{claimOfClass("csi", boundTo("pv")), csi, limited, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "h"}}}}},
			[]string{"NodeVolumeLimits: the node takes 0 volumes of driver csi.example.com: it has 0, and the pod needs 1 more -> delete pods of the node that use 1 volumes of driver csi.example.com"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := explained(t, Options{}, pod("p", withClaim("data")), append(test.objects, node("a", labelNode(v1.LabelTopologyZone, "z1")))...)
			if diff := cmp.Diff(test.want, allObstacles(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestObstacleOfAnothersClaim has a claim with the name that the claim of the pod's
// ephemeral volume would have.
func TestObstacleOfAnothersClaim(t *testing.T) {
	p := pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	})
	claim := claimOfClass("csi")
	claim.Name = "p-data"
	d := explained(t, Options{}, p, claim, class("csi", "csi.example.com", storagev1.VolumeBindingWaitForFirstConsumer), node("a"))
	want := []string{"VolumeBinding: PersistentVolumeClaim p-data of the ephemeral volume data was not made for the pod"}
	if diff := cmp.Diff(want, allObstacles(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// allObstacles returns the obstacles of the pod and of the first node, with their
// remedies.
func allObstacles(d *Decision) (out []string) {
	rejections := d.Rejections
	if len(rejections) == 0 && len(d.Nodes) > 0 {
		rejections = d.Nodes[0].Rejections
	}
	for _, r := range rejections {
		for _, o := range r.Obstacles {
			out = append(out, r.Plugin+": "+strings.Join(append([]string{o.Text}, o.Remedies...), " -> "))
		}
	}
	return out
}

// What keeps pods with devices off nodes, and what would help.
func TestObstaclesOfDevices(t *testing.T) {
	gpu := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "one"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: new("a"), Pool: resourcev1.ResourcePool{Name: "a", Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}}
	taken := func(name string, nodes *v1.NodeSelector) *resourcev1.ResourceClaim {
		c := claim.DeepCopy()
		c.Name, c.UID = name, types.UID(name)
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: nodes, Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "gpu.example.com", Pool: "a", Device: "gpu-0"}}}}
		return c
	}
	elsewhere := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"b"}}}}}}
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		want    []string
	}{
		{"no claim", nil, []string{
			"DynamicResources: ResourceClaim default/one does not exist -> create ResourceClaim one in namespace default",
			"DynamicResources: ResourceClaim default/one does not exist -> create ResourceClaim one in namespace default",
		}},
		{"no class", []runtime.Object{claim}, []string{"DynamicResources: ResourceClaim one wants devices of DeviceClass gpu, which does not exist -> create DeviceClass gpu, or install the driver that brings it"}},
		{"no devices", []runtime.Object{claim, gpu}, []string{"DynamicResources: the devices that the node reaches do not satisfy ResourceClaim one (gpu): it has 0, of which 0 are allocated -> install a driver that publishes devices of the node in ResourceSlices"}},
		{"all taken", []runtime.Object{claim, gpu, slice, taken("other", nil)}, []string{"DynamicResources: the devices that the node reaches do not satisfy ResourceClaim one (gpu): it has 1, of which 1 are allocated -> delete pods that hold devices which the claims select -> let the claims select other devices -> tolerate the taints of devices, if they have any"}},
		{"elsewhere", []runtime.Object{gpu, slice, taken("one", elsewhere)}, []string{"DynamicResources: ResourceClaim one has device gpu-0 of driver gpu.example.com, which the node does not reach"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pod("p", spec(func(s *v1.PodSpec) {
				s.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("one")}}
			}))
			d := explained(t, Options{}, p, append(test.objects, node("a"))...)
			if diff := cmp.Diff(test.want, allObstacles(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
