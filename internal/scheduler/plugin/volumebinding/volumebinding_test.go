package volumebinding

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

func claim(t plugintest.TB, name, text string) *v1.PersistentVolumeClaim {
	c := plugintest.Yaml[v1.PersistentVolumeClaim](t, "{"+text+"}")
	c.Namespace, c.Name, c.UID = "default", name, types.UID(name)
	return c
}

// open is a claim of 10Gi of a class for first consumers, with more in its spec.
func open(t plugintest.TB, name, class, spec string) *v1.PersistentVolumeClaim {
	return claim(t, name, "spec: {storageClassName: "+class+", accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}"+spec+"}")
}

func bound(t plugintest.TB, name, pv string) *v1.PersistentVolumeClaim {
	return claim(t, name, `metadata: {annotations: {pv.kubernetes.io/bind-completed: "yes"}}, spec: {volumeName: `+pv+"}")
}

// pvOf is an available one of 10Gi of the class local, with more in its spec.
func pvOf(t plugintest.TB, name, spec string) *v1.PersistentVolume {
	v := plugintest.Yaml[v1.PersistentVolume](t, `{metadata: {labels: {disk: `+name+`}}, status: {phase: Available},
spec: {storageClassName: local, accessModes: [ReadWriteOnce], capacity: {storage: 10Gi}, local: {path: /x}}}`)
	more := plugintest.Yaml[v1.PersistentVolumeSpec](t, "{"+spec+"}")
	v.Name, v.UID = name, types.UID(name)
	v.Spec.NodeAffinity, v.Spec.ClaimRef, v.Spec.VolumeMode, v.Spec.VolumeAttributesClassName = more.NodeAffinity, more.ClaimRef, more.VolumeMode, more.VolumeAttributesClassName
	for name, q := range more.Capacity {
		v.Spec.Capacity[name] = q
	}
	if more.StorageClassName != "" {
		v.Spec.StorageClassName = more.StorageClassName
	}
	if more.AccessModes != nil {
		v.Spec.AccessModes = more.AccessModes
	}
	return v
}

func onNode(name string) string {
	return "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [" + name + "]}]}]}}"
}

func classes(t plugintest.TB) []runtime.Object {
	var all []runtime.Object
	for _, text := range []string{
		"metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer",
		"metadata: {name: made}, provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer",
		"metadata: {name: in-zone-a}, provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a, c]}]}]",
		"metadata: {name: nowhere}, provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: []}]",
		"metadata: {name: immediate}, provisioner: csi.example.com, volumeBindingMode: Immediate",
		"metadata: {name: modeless}, provisioner: csi.example.com",
	} {
		all = append(all, plugintest.Yaml[storagev1.StorageClass](t, "{"+text+"}"))
	}
	return all
}

// pod uses claims by name; "e*" is an ephemeral volume.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	for i, c := range claims {
		v := v1.Volume{Name: fmt.Sprint("v", i)}
		if strings.HasPrefix(c, "e") {
			v.Ephemeral = &v1.EphemeralVolumeSource{}
		} else {
			v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	return p
}

// nodes are n1 in zone a and n2 in zone b.
func nodes(t plugintest.TB) []*v1.Node {
	return []*v1.Node{
		plugintest.Yaml[v1.Node](t, "metadata: {name: n1, labels: {kubernetes.io/hostname: n1, zone: a}}"),
		plugintest.Yaml[v1.Node](t, "metadata: {name: n2, labels: {kubernetes.io/hostname: n2, zone: b}}"),
	}
}

// Pods that cannot run on any node, and pods that the plugin skips.
func TestPreFilter(t *testing.T) {
	owned := open(t, "p-v0", "made", "")
	owned.OwnerReferences = plugintest.Yaml[v1.Pod](t, "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: p, controller: true}]}").OwnerReferences
	deleted := claim(t, "c", "metadata: {deletionTimestamp: 2026-01-01T00:00:00Z}")
	for _, test := range []struct {
		name    string
		claims  []string
		objects []runtime.Object
		code    framework.Code
		message string
	}{
		{name: "no claim", code: framework.Skip},
		{name: "a claim that is not there", claims: []string{"c"}, code: framework.UnschedulableAndUnresolvable, message: `persistentvolumeclaim "c" not found`},
		{
			name: "the claim of an ephemeral volume that is not there", claims: []string{"e"}, code: framework.UnschedulableAndUnresolvable,
			message: `waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"`,
		},
		{
			name: "an ephemeral volume's claim of another", claims: []string{"e"}, objects: []runtime.Object{open(t, "p-v0", "made", "")}, code: framework.UnschedulableAndUnresolvable,
			message: "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
		},
		{name: "an ephemeral volume's claim of the pod", claims: []string{"e"}, objects: []runtime.Object{owned}},
		{name: "a claim that is being deleted", claims: []string{"c"}, objects: []runtime.Object{deleted}, code: framework.UnschedulableAndUnresolvable, message: `persistentvolumeclaim "c" is being deleted`},
		{
			name: "a lost claim", claims: []string{"c"}, objects: []runtime.Object{claim(t, "c", "spec: {volumeName: v}, status: {phase: Lost}")}, code: framework.UnschedulableAndUnresolvable,
			message: `persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`,
		},
		{name: "immediate and not bound", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "immediate", "")}, code: framework.UnschedulableAndUnresolvable, message: "pod has unbound immediate PersistentVolumeClaims"},
		{name: "no class and not bound", claims: []string{"c"}, objects: []runtime.Object{claim(t, "c", "")}, code: framework.UnschedulableAndUnresolvable, message: "pod has unbound immediate PersistentVolumeClaims"},
		{name: "a class that is not there", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "absent", "")}, code: framework.UnschedulableAndUnresolvable, message: "pod has unbound immediate PersistentVolumeClaims"},
		{
			name: "names its volume, so is not the scheduler's", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "local", ", volumeName: v")}, code: framework.UnschedulableAndUnresolvable,
			message: "pod has unbound immediate PersistentVolumeClaims",
		},
		{name: "a class without a mode", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "modeless", "")}, code: framework.Error, message: `VolumeBindingMode not set for StorageClass "modeless"`},
		{name: "bound", claims: []string{"c"}, objects: []runtime.Object{bound(t, "c", "v"), pvOf(t, "v", "")}},
		{name: "waits for its first consumer", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "local", "")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil, append(classes(t), test.objects...)...)
			_, s := p.(*plugin).PreFilter(t.Context(), framework.NewCycleState(h), framework.NewPodInfo(pod("p", test.claims...)), nil)
			if s.Code() != test.code || s.Message() != test.message {
				t.Errorf("%s %q, want %s %q", s.Code(), s.Message(), test.code, test.message)
			}
		})
	}
}

// show returns the decisions for a pod's claims on a node as text:
// claim=volume, or claim+ if the claim is to be provisioned. If the node is
// rejected, it returns the reasons.
func show(t *testing.T, p *plugin, h *framework.Handle, node string, claims ...string) string {
	t.Helper()
	state := framework.NewCycleState(h)
	info, snapshot := framework.NewPodInfo(pod("p", claims...)), plugintest.Snapshot(nodes(t))
	if _, s := p.PreFilter(t.Context(), state, info, snapshot); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if s := p.Filter(t.Context(), state, info, snapshot.Node(node)); !s.IsSuccess() {
		if s.Code() != framework.UnschedulableAndUnresolvable {
			t.Errorf("code %s", s.Code())
		}
		return s.Message()
	}
	kept, _ := p.state.Get(state)
	var out []string
	for _, b := range kept.found[node].bindings {
		out = append(out, b.claim.Name+"="+b.volume.Name)
	}
	for _, v := range kept.found[node].provisions {
		out = append(out, v.claim.Name+"+")
	}
	return strings.Join(out, " ")
}

func TestFilter(t *testing.T) {
	pinned := func(spec string) []runtime.Object {
		return []runtime.Object{open(t, "c", "local", spec), pvOf(t, "v1", onNode("n1")), pvOf(t, "v2", onNode("n2")+", capacity: {storage: 20Gi}")}
	}
	small := open(t, "small", "local", "")
	small.Spec.Resources.Requests[v1.ResourceStorage] = *pvOf(t, "x", "capacity: {storage: 1Gi}").Spec.Capacity.Storage()
	selected := open(t, "c", "made", "")
	selected.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n1"}
	reserved := "claimRef: {namespace: default, name: c, uid: c}"
	for _, test := range []struct {
		name    string
		claims  []string
		objects []runtime.Object
		n1, n2  string
	}{
		{"bound, anywhere", []string{"c"}, []runtime.Object{bound(t, "c", "v"), pvOf(t, "v", "")}, "", ""},
		{"bound, on one node", []string{"c"}, []runtime.Object{bound(t, "c", "v"), pvOf(t, "v", onNode("n1"))}, "", nodeConflict},
		{"bound, the volume is gone", []string{"c"}, []runtime.Object{bound(t, "c", "v")}, volumeNotExist, volumeNotExist},
		{"the volume of each node", []string{"c"}, pinned(""), "c=v1", "c=v2"},
		{"size", []string{"c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "capacity: {storage: 9Gi}")}, bindConflict, bindConflict},
		{"the smallest", []string{"c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v1", "capacity: {storage: 30Gi}"), pvOf(t, "v2", "capacity: {storage: 20Gi}")}, "c=v2", "c=v2"},
		{"class", []string{"c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "storageClassName: made")}, bindConflict, bindConflict},
		{"access modes", []string{"c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "accessModes: [ReadOnlyMany]")}, bindConflict, bindConflict},
		{"volume mode", []string{"c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "volumeMode: Block")}, bindConflict, bindConflict},
		{"selector", []string{"c"}, pinned(", selector: {matchLabels: {disk: v1}}"), "c=v1", bindConflict},
		{"attributes class", []string{"c"}, []runtime.Object{open(t, "c", "local", ", volumeAttributesClassName: gold"), pvOf(t, "v1", ""), pvOf(t, "v2", "volumeAttributesClassName: gold")}, "c=v2", "c=v2"},
		{"of another claim", []string{"c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "claimRef: {namespace: default, name: d}")}, bindConflict, bindConflict},
		{"reserved, though larger", []string{"c"}, append(pinned(""), pvOf(t, "v3", reserved+", capacity: {storage: 99Gi}")), "c=v3", "c=v3"},
		{"reserved on another node", []string{"c"}, append(pinned(""), pvOf(t, "v0", reserved+", "+onNode("n1"))), "c=v0", bindConflict},
		{"two claims, two volumes", []string{"c", "small"}, append(pinned(""), small, pvOf(t, "v3", onNode("n1"))), "small=v1 c=v3", bindConflict},
		{"provisioned", []string{"c"}, []runtime.Object{open(t, "c", "made", "")}, "c+", "c+"},
		{"bound rather than provisioned", []string{"c"}, []runtime.Object{open(t, "c", "made", ""), pvOf(t, "v", "storageClassName: made, "+onNode("n1"))}, "c=v", "c+"},
		{"provisioned in a zone", []string{"c"}, []runtime.Object{open(t, "c", "in-zone-a", "")}, "c+", bindConflict},
		{"provisioned nowhere", []string{"c"}, []runtime.Object{open(t, "c", "nowhere", "")}, bindConflict, bindConflict},
		{"being provisioned for a node", []string{"c"}, []runtime.Object{selected}, "c+", bindConflict},
		{"the first conflict of bound claims, and one of open claims", []string{"c", "d", "x"}, append(pinned(", selector: {matchLabels: {disk: v1}}"), bound(t, "d", "d"), pvOf(t, "d", onNode("n1")), bound(t, "x", "x")), volumeNotExist, nodeConflict + ", " + bindConflict},
		{"a claim twice", []string{"c", "c"}, []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "")}, "c=v", "c=v"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil, append(classes(t), test.objects...)...)
			for node, want := range map[string]string{"n1": test.n1, "n2": test.n2} {
				if got := show(t, p.(*plugin), h, node, test.claims...); got != want {
					t.Errorf("%s: %q, want %q", node, got, want)
				}
			}
		})
	}
}

func capacityOf(t plugintest.TB, name, text string) *storagev1.CSIStorageCapacity {
	c := plugintest.Yaml[storagev1.CSIStorageCapacity](t, "{storageClassName: made, "+text+"}")
	c.Namespace, c.Name = "driver", name
	return c
}

func TestCapacity(t *testing.T) {
	driver := func(publishes string) runtime.Object {
		return plugintest.Yaml[storagev1.CSIDriver](t, "{metadata: {name: csi.example.com}, spec: {storageCapacity: "+publishes+"}}")
	}
	inA := "nodeTopology: {matchLabels: {zone: a}}"
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		n1, n2  string
	}{
		{"no driver", nil, "c+", "c+"},
		{"the driver does not say", []runtime.Object{driver("false")}, "c+", "c+"},
		{"no capacity", []runtime.Object{driver("true")}, notEnoughSpace, notEnoughSpace},
		{"enough in one zone", []runtime.Object{driver("true"), capacityOf(t, "a", "capacity: 10Gi, "+inA)}, "c+", notEnoughSpace},
		{"too little", []runtime.Object{driver("true"), capacityOf(t, "a", "capacity: 9Gi, "+inA)}, notEnoughSpace, notEnoughSpace},
		{"enough, but not in one volume", []runtime.Object{driver("true"), capacityOf(t, "a", "capacity: 99Gi, maximumVolumeSize: 9Gi, "+inA)}, notEnoughSpace, notEnoughSpace},
		{"enough in one volume, whatever is free", []runtime.Object{driver("true"), capacityOf(t, "a", "capacity: 9Gi, maximumVolumeSize: 9223372036854775807, "+inA)}, "c+", notEnoughSpace},
		{"nowhere", []runtime.Object{driver("true"), capacityOf(t, "a", "capacity: 99Gi")}, notEnoughSpace, notEnoughSpace},
		{"everywhere", []runtime.Object{driver("true"), capacityOf(t, "a", "capacity: 99Gi, nodeTopology: {}")}, "c+", "c+"},
		{"of another class", []runtime.Object{driver("true"), plugintest.Yaml[storagev1.CSIStorageCapacity](t, "{metadata: {name: x}, storageClassName: other, capacity: 99Gi, nodeTopology: {}}")}, notEnoughSpace, notEnoughSpace},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil, append(append(classes(t), open(t, "c", "made", "")), test.objects...)...)
			for node, want := range map[string]string{"n1": test.n1, "n2": test.n2} {
				if got := show(t, p.(*plugin), h, node, "c"); got != want {
					t.Errorf("%s: %q, want %q", node, got, want)
				}
			}
		})
	}
}

func TestScore(t *testing.T) {
	driver := plugintest.Yaml[storagev1.CSIDriver](t, "{metadata: {name: csi.example.com}, spec: {storageCapacity: true}}")
	everywhere := ", nodeTopology: {}"
	for _, test := range []struct {
		name     string
		claims   []string
		objects  []runtime.Object
		features []string
		want     int64 // -1: not scored
	}{
		{name: "no claims", want: -1},
		{name: "bound already", claims: []string{"c"}, objects: []runtime.Object{bound(t, "c", "v"), pvOf(t, "v", "")}, want: -1},
		{name: "half of a volume", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "capacity: {storage: 20Gi}")}, want: 50},
		{name: "all of a volume", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "")}, want: 0},
		{name: "a tenth of a storage", claims: []string{"c"}, objects: []runtime.Object{driver, open(t, "c", "made", ""), capacityOf(t, "x", "capacity: 100Gi"+everywhere)}, want: 90},
		{name: "two of one storage", claims: []string{"c", "d"}, objects: []runtime.Object{driver, open(t, "c", "made", ""), open(t, "d", "made", ""), capacityOf(t, "x", "capacity: 100Gi"+everywhere)}, want: 80},
		{name: "two classes", claims: []string{"c", "d"}, objects: []runtime.Object{open(t, "c", "local", ""), open(t, "d", "made", ""), pvOf(t, "v", "capacity: {storage: 40Gi}"), pvOf(t, "w", "storageClassName: made, capacity: {storage: 20Gi}")}, want: 63},
		{name: "an unknown storage", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "made", "")}, want: 0},
		{name: "the gate is off", claims: []string{"c"}, objects: []runtime.Object{open(t, "c", "local", ""), pvOf(t, "v", "")}, features: []string{"StorageCapacityScoring=false"}, want: -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			made, h := plugintest.New(t, Factory(), test.features, append(classes(t), test.objects...)...)
			p, state, info := made.(*plugin), framework.NewCycleState(h), framework.NewPodInfo(pod("p", test.claims...))
			snapshot := plugintest.Snapshot(nodes(t))
			if _, s := p.PreFilter(t.Context(), state, info, snapshot); s.IsSuccess() {
				for _, n := range snapshot.Nodes() {
					if s := p.Filter(t.Context(), state, info, n); !s.IsSuccess() {
						t.Fatal(s.Message())
					}
				}
			}
			got := int64(-1)
			if p.PreScore(t.Context(), state, info, snapshot, snapshot.Nodes()).IsSuccess() {
				got, _ = p.Score(t.Context(), state, info, snapshot.Node("n1"))
			}
			if got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	p, _ := plugintest.New(t, Factory(), nil)
	asked := pod("p", "c", "e")
	class := func(more string) *storagev1.StorageClass {
		return plugintest.Yaml[storagev1.StorageClass](t, "{metadata: {name: s}, provisioner: x"+more+"}")
	}
	driver := func(publishes string) *storagev1.CSIDriver {
		return plugintest.Yaml[storagev1.CSIDriver](t, "{metadata: {name: x}, spec: {storageCapacity: "+publishes+"}}")
	}
	running := pod("q", "c")
	running.Spec.NodeName = "n1"
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"the claim changes", framework.PersistentVolumeClaim, framework.UpdateOther, claim(t, "c", ""), claim(t, "c", ""), framework.Queue},
		{"the claim of its ephemeral volume comes", framework.PersistentVolumeClaim, framework.Add, nil, claim(t, "p-v1", ""), framework.Queue},
		{"another claim changes", framework.PersistentVolumeClaim, framework.UpdateOther, claim(t, "d", ""), claim(t, "d", ""), framework.QueueSkip},
		{"a volume changes", framework.PersistentVolume, framework.UpdateOther, pvOf(t, "v", ""), pvOf(t, "v", ""), framework.Queue},
		{"a node gets labels", framework.Node, framework.UpdateNodeLabel, &v1.Node{}, &v1.Node{}, framework.Queue},
		{"a class comes", framework.StorageClass, framework.Add, nil, class(""), framework.Queue},
		{"a class allows other topologies", framework.StorageClass, framework.UpdateOther, class(", allowedTopologies: [{}]"), class(""), framework.Queue},
		{"a class may be expanded", framework.StorageClass, framework.UpdateOther, class(""), class(", allowVolumeExpansion: true"), framework.QueueSkip},
		{"a driver no longer publishes capacities", framework.CSIDriver, framework.UpdateOther, driver("true"), driver("false"), framework.Queue},
		{"a driver publishes capacities now", framework.CSIDriver, framework.UpdateOther, driver("false"), driver("true"), framework.QueueSkip},
		{"a capacity comes", framework.CSIStorageCapacity, framework.Add, nil, capacityOf(t, "x", "capacity: 1Gi"), framework.Queue},
		{"a capacity grows", framework.CSIStorageCapacity, framework.UpdateOther, capacityOf(t, "x", "capacity: 1Gi"), capacityOf(t, "x", "capacity: 2Gi"), framework.Queue},
		{"a capacity shrinks", framework.CSIStorageCapacity, framework.UpdateOther, capacityOf(t, "x", "capacity: 2Gi"), capacityOf(t, "x", "capacity: 1Gi"), framework.QueueSkip},
		{"a pod was not bound", framework.AssignedPod, framework.Delete, pod("q", "d"), nil, framework.Queue},
		{"a pod that was not bound has no claims", framework.AssignedPod, framework.Delete, pod("q"), nil, framework.QueueSkip},
		{"a running pod goes", framework.AssignedPod, framework.Delete, running, nil, framework.QueueSkip},
	} {
		if got, ok := plugintest.Hint(t, p, asked, test.resource, test.action, test.old, test.new); !ok || got != test.want {
			t.Errorf("%s: %v %t, want %v", test.name, got, ok, test.want)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		change func(*kubescheduler.VolumeBindingArgs)
		want   string
	}{
		{func(*kubescheduler.VolumeBindingArgs) {}, ""},
		{func(a *kubescheduler.VolumeBindingArgs) { a.BindTimeoutSeconds = ptr.To[int64](0) }, ""},
		{func(a *kubescheduler.VolumeBindingArgs) { a.BindTimeoutSeconds = ptr.To[int64](-1) }, "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"},
		{func(a *kubescheduler.VolumeBindingArgs) { a.Shape[0].Score = 11 }, "shape[0].score: Invalid value: 11: not in valid range [0, 10]"},
		{func(a *kubescheduler.VolumeBindingArgs) { a.Shape[1].Utilization = 0 }, "shape[1].utilization: Invalid value: 0: utilization values must be sorted in increasing order"},
	} {
		a := Factory().DefaultArguments()
		test.change(a.(*kubescheduler.VolumeBindingArgs))
		got := ""
		if errs := Factory().Validate(nil, a); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// A shape that would have no effect is refused.
func TestShapeWithoutScoring(t *testing.T) {
	for gate, want := range map[string]string{
		"StorageCapacityScoring=true":  "",
		"StorageCapacityScoring=false": "unexpected field `shape`, feature StorageCapacityScoring is disabled",
	} {
		gates, err := feature.Parse([]string{gate})
		if err != nil {
			t.Fatal(err)
		}
		a := &kubescheduler.VolumeBindingArgs{Shape: []kubescheduler.UtilizationShapePoint{{Utilization: 0, Score: 0}, {Utilization: 100, Score: 10}}}
		setDefaults(a)
		_, err = Factory().New(t.Context(), a, &framework.Handle{Informers: plugintest.Informers(t), Features: gates})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", gate, err, want)
		}
	}
}

// On nodes that migrate an in-tree plugin to its CSI driver, the driver's
// topology applies to volumes of the plugin.
func TestMigratedVolume(t *testing.T) {
	pv := plugintest.Yaml[v1.PersistentVolume](t, `{metadata: {name: v}, spec: {gcePersistentDisk: {pdName: d}, nodeAffinity: {required:
{nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}}}`)
	csiNode := func(name, migrated string) *storagev1.CSINode {
		return plugintest.Yaml[storagev1.CSINode](t, "{metadata: {name: "+name+", annotations: {storage.alpha.kubernetes.io/migrated-plugins: "+migrated+"}}, spec: {drivers: []}}")
	}
	p, h := plugintest.New(t, Factory(), nil, pv, bound(t, "c", "v"), csiNode("there", "kubernetes.io/gce-pd"), csiNode("elsewhere", "kubernetes.io/gce-pd"), csiNode("old", "kubernetes.io/aws-ebs"))
	for name, want := range map[string]string{"there": "", "elsewhere": nodeConflict, "old": nodeConflict} {
		zone := map[string]string{"there": "a", "elsewhere": "b", "old": "a"}[name]
		node := plugintest.Yaml[v1.Node](t, "metadata: {name: "+name+", labels: {topology.gke.io/zone: "+zone+"}}")
		state, info, snapshot := framework.NewCycleState(h), framework.NewPodInfo(pod("p", "c")), plugintest.Snapshot([]*v1.Node{node})
		if _, s := p.(*plugin).PreFilter(t.Context(), state, info, snapshot); !s.IsSuccess() {
			t.Fatal(s.Message())
		}
		if got := p.(*plugin).Filter(t.Context(), state, info, snapshot.Node(name)).Message(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A node whose set of migrated in-tree plugins changes may fit a pod.
func TestHintsOfCSINodes(t *testing.T) {
	node := func(migrated string) *storagev1.CSINode {
		return plugintest.Yaml[storagev1.CSINode](t, "{metadata: {name: n, annotations: {storage.alpha.kubernetes.io/migrated-plugins: '"+migrated+"'}}, spec: {drivers: []}}")
	}
	p, _ := plugintest.New(t, Factory(), nil)
	events, err := p.(*plugin).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		old, new *storagev1.CSINode
		want     framework.QueueingHint
	}{
		{"comes", nil, node("kubernetes.io/gce-pd"), framework.Queue},
		{"comes without", nil, node(""), framework.QueueSkip},
		{"changes", node(""), node("kubernetes.io/gce-pd"), framework.Queue},
		{"stays", node("kubernetes.io/gce-pd"), node("kubernetes.io/gce-pd"), framework.QueueSkip},
	} {
		got, happened := framework.QueueSkip, framework.ClusterEvent{Resource: framework.CSINode, Action: framework.Update}
		var old any
		if test.old != nil {
			old = test.old
		} else {
			happened.Action = framework.Add
		}
		for _, e := range events {
			if e.Event.Matches(happened) && e.Hint(framework.NewPodInfo(pod("p", "c")), old, test.new) == framework.Queue {
				got = framework.Queue
			}
		}
		if got != test.want {
			t.Errorf("a node %s: hint %d, want %d", test.name, got, test.want)
		}
	}
}
