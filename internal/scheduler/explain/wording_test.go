package explain

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

// TestWording has the messages of FailedScheduling events, for every plugin
// that can reject pods. They are upstream's, since people search for them.
func TestWording(t *testing.T) {
	seen := map[string]bool{
		// These reject no pod.
		"PrioritySort": true, "NodeResourcesBalancedAllocation": true, "ImageLocality": true, "DefaultBinder": true,
		"NodeName": true, // only of pods that are on a node
	}
	for _, test := range slices.Concat(wordingOfPods(), wordingOfPlacement(), wordingOfVolumes(), wordingOfDevices()) {
		seen[test.plugin] = true
		t.Run(test.plugin+" "+test.want, func(t *testing.T) {
			o := Options{Configuration: gangs(t)}
			d := explained(t, o, test.pod, append(test.objects, node("a", test.node...))...)
			got := d.Message
			if len(d.Rejections) > 0 && got == "" {
				got = strings.Join(d.Rejections[0].Reasons, ", ")
			}
			if test.plugin == "DefaultPreemption" {
				got = d.PreemptionMessage
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	for _, plugin := range all.Default(gangs(t).Features) {
		if !seen[plugin.Name] {
			t.Errorf("plugin %s has no line here", plugin.Name)
		}
	}
}

// wording is a pod that a plugin rejects in a cluster with the node a.
type wording struct {
	plugin  string
	pod     *v1.Pod
	node    []func(*v1.Node)
	objects []runtime.Object
	want    string
}

func wordingOfPods() []wording {
	full := func(n *v1.Node) { n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("0") }
	restarts := pod("p", spec(func(s *v1.PodSpec) {
		s.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	}))
	return []wording{
		{"SchedulingGates", pod("p", spec(func(s *v1.PodSpec) { s.SchedulingGates = []v1.PodSchedulingGate{{Name: "a"}, {Name: "b"}} })), nil, nil, "waiting for scheduling gates: [a b]"},
		{"GangScheduling", pod("p", inGroup("g")), nil, nil, `waiting for pods's pod group "g" to appear in scheduling queue`},
		{"GangScheduling", pod("p", inGroup("g")), nil, []runtime.Object{group("g", 2)}, "waiting for minCount pods from a gang to appear in scheduling queue"},
		{"NodeResourcesFit", pod("p", requests("9", "9Gi")), nil, nil, "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."},
		{"NodeResourcesFit", pod("p"), []func(*v1.Node){full}, nil, "0/1 nodes are available: 1 Too many pods."},
		{"NodeDeclaredFeatures", restarts, nil, nil, "0/1 nodes are available: 1 node declared features check failed - unsatisfied requirements: RestartAllContainersOnContainerExits."},
		{"DefaultPreemption", pod("p", requests("4", "1Gi")), nil, []runtime.Object{pod("x", on("a"))}, "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{"DefaultPreemption", pod("p"), []func(*v1.Node){func(n *v1.Node) { n.Spec.Unschedulable = true }}, nil, "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."},
	}
}

func wordingOfPlacement() []wording {
	named := func(names ...string) func(*v1.Pod) {
		var term v1.NodeSelectorTerm
		for _, name := range names {
			term.MatchFields = append(term.MatchFields, v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}})
		}
		return required(term)
	}
	near := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selecting("x")}}
	}
	far := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selecting("x")}}
	}
	spread := func(key string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, MinDomains: new(int32(2)), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			}}
		}
	}
	return []wording{
		{"NodeUnschedulable", pod("p"), []func(*v1.Node){func(n *v1.Node) { n.Spec.Unschedulable = true }}, nil, "0/1 nodes are available: 1 node(s) were unschedulable."},
		{"TaintToleration", pod("p"), []func(*v1.Node){taint("a=b", v1.TaintEffectNoSchedule)}, nil, "0/1 nodes are available: 1 node(s) had untolerated taint(s)."},
		{"NodeAffinity", pod("p", required(expression("disk", v1.NodeSelectorOpExists))), nil, nil, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."},
		{"NodeAffinity", pod("p", named("b")), nil, nil, "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."},
		{"NodeAffinity", pod("p", named("a", "b")), nil, nil, "0/1 nodes are available: pod affinity terms conflict."},
		{"NodePorts", pod("p", port(80)), nil, []runtime.Object{pod("x", on("a"), port(80))}, "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."},
		{"PodTopologySpread", pod("p", spread("zone")), nil, nil, "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label)."},
		{"PodTopologySpread", pod("p", app("x"), spread(v1.LabelHostname)), nil, []runtime.Object{pod("x", on("a"))}, "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."},
		{"InterPodAffinity", pod("p", near), nil, nil, "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
		{"InterPodAffinity", pod("p", far), nil, []runtime.Object{pod("x", on("a"))}, "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."},
		{"InterPodAffinity", pod("p", app("x")), nil, []runtime.Object{pod("y", on("a"), far)}, "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."},
	}
}

func wordingOfVolumes() []wording {
	const first, now = storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	p := pod("p", withClaim("data"))
	local, csi := class("local", "kubernetes.io/no-provisioner", first), class("csi", "csi.example.com", first)
	pv := func(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
		v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		change(v)
		return v
	}
	disk := func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}}}
	}
	once := func(c *v1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	return []wording{
		{"VolumeRestrictions", p, nil, nil, `0/1 nodes are available: persistentvolumeclaim "data" not found.`},
		{"VolumeRestrictions", pod("p", disk), nil, []runtime.Object{pod("x", on("a"), disk)}, "0/1 nodes are available: 1 node(s) had no available disk."},
		{"VolumeRestrictions", p, nil, []runtime.Object{claimOfClass("local", boundTo("pv"), once), local, pv(func(*v1.PersistentVolume) {}), pod("x", on("a"), withClaim("data"))},
			"0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode."},
		{"NodeVolumeLimits", p, nil, []runtime.Object{claimOfClass("csi", boundTo("pv")), csi,
			pv(func(v *v1.PersistentVolume) {
				v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "h"}
			}),
			&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: "a", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(0))}}}}}},
			"0/1 nodes are available: 1 node(s) exceed max volume count."},
		{"VolumeBinding", p, nil, []runtime.Object{claimOfClass("now"), class("now", "csi.example.com", now)}, "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."},
		{"VolumeBinding", p, nil, []runtime.Object{claimOfClass("local"), local}, "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."},
		{"VolumeBinding", p, nil, []runtime.Object{claimOfClass("csi"), csi, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}}},
			"0/1 nodes are available: 1 node(s) did not have enough free storage."},
		{"VolumeBinding", p, nil, []runtime.Object{claimOfClass("local", boundTo("pv")), local, pv(func(v *v1.PersistentVolume) {
			v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{expression(v1.LabelHostname, v1.NodeSelectorOpIn, "b")}}}
		})}, "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."},
		{"VolumeZone", p, []func(*v1.Node){labelNode(v1.LabelTopologyZone, "z1")}, []runtime.Object{claimOfClass("local", boundTo("pv")), local,
			pv(func(v *v1.PersistentVolume) { v.Labels = map[string]string{v1.LabelTopologyZone: "z2"} })}, "0/1 nodes are available: 1 node(s) had no available volume zone."},
	}
}

func wordingOfDevices() []wording {
	p := pod("p", spec(func(s *v1.PodSpec) {
		s.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("one")}}
	}))
	claim := func(nodes *v1.NodeSelector) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "one"}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
		if nodes != nil {
			c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: nodes}
		}
		return c
	}
	elsewhere := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{expression(v1.LabelHostname, v1.NodeSelectorOpIn, "b")}}
	return []wording{
		{"DynamicResources", p, nil, nil, `0/1 nodes are available: resourceclaim.resource.k8s.io "one" not found.`},
		{"DynamicResources", p, nil, []runtime.Object{claim(nil)}, "0/1 nodes are available: request r: device class gpu does not exist."},
		{"DynamicResources", p, nil, []runtime.Object{claim(nil), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}}, "0/1 nodes are available: 1 cannot allocate all claims."},
		{"DynamicResources", p, nil, []runtime.Object{claim(elsewhere)}, "0/1 nodes are available: 1 resourceclaim not available on the node."},
	}
}
