package nodevolumelimits

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

const exceeded = "node(s) exceed max volume count"

// pod makes a pod with volumes that are separated by semicolons.
func pod(t *testing.T, name, volumes string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	for i, source := range strings.Split(volumes, ";") {
		if source = strings.TrimSpace(source); source != "" {
			p.Spec.Volumes = append(p.Spec.Volumes, *plugintest.Yaml[v1.Volume](t, fmt.Sprintf("{name: v%d, %s}", i, source)))
		}
	}
	return p
}

func claim(name string) string { return "persistentVolumeClaim: {claimName: " + name + "}" }

// objects are a CSINode with room for two volumes of csi.example.com and of
// EBS, and the claims a, b and c with volumes of that driver; d has the volume
// of c, w waits for its first consumer, other is of a driver without limits.
func objects(t *testing.T) []runtime.Object {
	all := []runtime.Object{
		plugintest.Yaml[storagev1.CSINode](t, `
metadata: {name: n1, annotations: {storage.alpha.kubernetes.io/migrated-plugins: "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"}}
spec: {drivers: [{name: csi.example.com, nodeID: x, allocatable: {count: 2}}, {name: ebs.csi.aws.com, nodeID: x, allocatable: {count: 1}}, {name: free.example.com, nodeID: x}]}`),
		plugintest.Yaml[storagev1.CSINode](t, "{metadata: {name: unmigrated}, spec: {drivers: [{name: ebs.csi.aws.com, nodeID: x, allocatable: {count: 1}}]}}"),
		plugintest.Yaml[storagev1.StorageClass](t, "{metadata: {name: s}, provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer}"),
		plugintest.Yaml[storagev1.StorageClass](t, "{metadata: {name: ebs}, provisioner: kubernetes.io/aws-ebs}"),
	}
	for name, spec := range map[string]string{
		"a": "volumeName: a", "b": "volumeName: b", "c": "volumeName: c", "d": "volumeName: c", "w": "storageClassName: s",
		"lost": "volumeName: lost, storageClassName: s", "other": "volumeName: other", "hostpath": "volumeName: hostpath", "ebs1": "volumeName: ebs1", "ebs2": "storageClassName: ebs",
	} {
		all = append(all, plugintest.Yaml[v1.PersistentVolumeClaim](t, "{metadata: {namespace: default, name: "+name+"}, spec: {"+spec+"}}"))
	}
	for name, source := range map[string]string{
		"a": "csi: {driver: csi.example.com, volumeHandle: 1}", "b": "csi: {driver: csi.example.com, volumeHandle: 2}", "c": "csi: {driver: csi.example.com, volumeHandle: 3}",
		"other": "csi: {driver: free.example.com, volumeHandle: 1}", "hostpath": "hostPath: {path: /x}", "ebs1": `awsElasticBlockStore: {volumeID: "aws://us-east-1a/vol-1"}`,
	} {
		source = strings.NewReplacer("volumeHandle: 1", `volumeHandle: "1"`, "volumeHandle: 2", `volumeHandle: "2"`, "volumeHandle: 3", `volumeHandle: "3"`).Replace(source)
		all = append(all, plugintest.Yaml[v1.PersistentVolume](t, "{metadata: {name: "+name+"}, spec: {"+source+"}}"))
	}
	return all
}

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		name, asked, running, node, attached string // running are volumes of one pod, attached is a volume
		code                                 framework.Code
		message                              string
	}{
		{name: "no volume", asked: "emptyDir: {}", code: framework.Skip},
		{name: "a volume of no driver", asked: claim("hostpath"), code: framework.Skip},
		{name: "room for both", asked: claim("a"), running: claim("b")},
		{name: "one too many", asked: claim("a"), running: claim("b") + ";" + claim("c"), code: framework.Unschedulable, message: exceeded},
		{name: "too many for any node", asked: claim("a") + ";" + claim("b") + ";" + claim("c"), code: framework.Unschedulable, message: exceeded},
		{name: "a volume that is there already", asked: claim("b"), running: claim("b") + ";" + claim("c")},
		{name: "the same volume by another claim", asked: claim("d"), running: claim("b") + ";" + claim("c")},
		{name: "a volume by two claims is one", asked: claim("a"), running: claim("c") + ";" + claim("d")},
		{name: "one that is still to be provisioned counts", asked: claim("w"), running: claim("b") + ";" + claim("c"), code: framework.Unschedulable, message: exceeded},
		{name: "one whose volume is lost counts by its class", asked: claim("a"), running: claim("b") + ";" + claim("lost"), code: framework.Unschedulable, message: exceeded},
		{name: "a driver without a limit", asked: claim("other"), running: claim("b") + ";" + claim("c")},
		{name: "other drivers do not count", asked: claim("a"), running: claim("b") + ";" + claim("other")},
		{name: "what is attached without a pod counts", asked: claim("a"), running: claim("b"), attached: "c", code: framework.Unschedulable, message: exceeded},
		{name: "what is attached for a pod counts once", asked: claim("a"), running: claim("b"), attached: "b"},
		{name: "a node without CSINode has no limits", asked: claim("a"), running: claim("b") + ";" + claim("c"), node: "unknown"},
		{name: "a running pod's claim that is gone", asked: claim("a"), running: claim("b") + ";" + claim("absent")},
		{name: "inline volumes of a driver have no limits", asked: "csi: {driver: csi.example.com}", running: claim("b") + ";" + claim("c")},
		{name: "EBS by CSI: inline", asked: "awsElasticBlockStore: {volumeID: vol-2}", running: claim("ebs1"), code: framework.Unschedulable, message: exceeded},
		{name: "EBS by CSI: the same disk", asked: "awsElasticBlockStore: {volumeID: vol-1}", running: claim("ebs1")},
		{name: "EBS by CSI: to be provisioned", asked: claim("ebs2"), running: claim("ebs1"), code: framework.Unschedulable, message: exceeded},
		{name: "EBS on a node that has not migrated it", asked: claim("ebs2"), running: claim("ebs1"), node: "unmigrated"},
		{name: "no claim", asked: claim("absent"), code: framework.UnschedulableAndUnresolvable, message: `looking up PVC default/absent: persistentvolumeclaim "absent" not found`},
		{name: "no claim of an ephemeral volume", asked: "ephemeral: {}", code: framework.UnschedulableAndUnresolvable, message: `looking up PVC default/asked-v0: persistentvolumeclaim "asked-v0" not found`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.node == "" {
				test.node = "n1"
			}
			all := objects(t)
			if test.attached != "" {
				all = append(all, plugintest.Yaml[storagev1.VolumeAttachment](t, "{metadata: {name: x}, spec: {attacher: csi.example.com, nodeName: n1, source: {persistentVolumeName: "+test.attached+"}}}"))
			}
			p, h := plugintest.New(t, Factory(), nil, all...)
			running := pod(t, "running", test.running)
			running.Spec.NodeName = test.node
			snapshot := plugintest.Snapshot([]*v1.Node{plugintest.Yaml[v1.Node](t, "metadata: {name: "+test.node+"}")}, running)
			s := plugintest.Filter(t, p, h, pod(t, "asked", test.asked), snapshot, test.node)
			if s.Code() != test.code || s.Message() != test.message {
				t.Errorf("%s %q, want %s %q", s.Code(), s.Message(), test.code, test.message)
			}
		})
	}
}

// Volumes that are made for a pod count like others. A claim that another pod owns is
// none of the pod's.
func TestEphemeralVolumes(t *testing.T) {
	owned := func(name, owner string) runtime.Object {
		return plugintest.Yaml[v1.PersistentVolumeClaim](t, fmt.Sprintf(
			"{metadata: {namespace: default, name: %s, ownerReferences: [{apiVersion: v1, kind: Pod, name: %s, uid: %s, controller: true}]}, spec: {storageClassName: s}}", name, owner, owner))
	}
	asked, first, second := owned("asked-v0", "asked"), owned("running-v0", "running"), owned("running-v1", "running")
	for _, test := range []struct {
		name, asked, running string
		claims               []runtime.Object
		code                 framework.Code
		message              string
	}{
		{name: "room", asked: "ephemeral: {}", claims: []runtime.Object{asked}},
		{name: "one too many", asked: "ephemeral: {}", running: claim("b") + ";" + claim("c"), claims: []runtime.Object{asked}, code: framework.Unschedulable, message: exceeded},
		{name: "one runs", asked: claim("a"), running: "ephemeral: {}", claims: []runtime.Object{first}},
		{name: "two run", asked: claim("a"), running: "ephemeral: {}; ephemeral: {}", claims: []runtime.Object{first, second}, code: framework.Unschedulable, message: exceeded},
		{name: "one runs beside a claim", asked: claim("a"), running: "ephemeral: {};" + claim("b"), claims: []runtime.Object{first}, code: framework.Unschedulable, message: exceeded},
		{name: "a running pod does not own the claim", asked: claim("a"), running: "ephemeral: {};" + claim("b"), claims: []runtime.Object{owned("running-v0", "other")}},
		{
			name: "the pod does not own the claim", asked: "ephemeral: {}", claims: []runtime.Object{owned("asked-v0", "other")}, code: framework.Error,
			message: "PVC default/asked-v0 was not created for pod default/asked (pod is not owner)",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil, append(objects(t), test.claims...)...)
			running := pod(t, "running", test.running)
			running.Spec.NodeName = "n1"
			snapshot := plugintest.Snapshot([]*v1.Node{plugintest.Yaml[v1.Node](t, "metadata: {name: n1}")}, running)
			if s := plugintest.Filter(t, p, h, pod(t, "asked", test.asked), snapshot, "n1"); s.Code() != test.code || s.Message() != test.message {
				t.Errorf("%s %q, want %s %q", s.Code(), s.Message(), test.code, test.message)
			}
		})
	}
}

// countedClaims counts the claims that are looked up.
type countedClaims struct {
	corelisters.PersistentVolumeClaimLister
	asked *int
}

func (c countedClaims) PersistentVolumeClaims(namespace string) corelisters.PersistentVolumeClaimNamespaceLister {
	*c.asked++
	return c.PersistentVolumeClaimLister.PersistentVolumeClaims(namespace)
}

// The claims of running pods are looked up only if the limits may be exceeded.
func TestClaimsAreLookedUpNearTheLimit(t *testing.T) {
	for _, test := range []struct {
		name, asked, running, attached string
		lookups                        int // of which one is of the pod's claim, if it has one
		code                           framework.Code
	}{
		{name: "room whatever runs", asked: claim("a"), running: claim("b"), lookups: 1},
		{name: "no limit", asked: claim("other"), running: claim("b") + ";" + claim("c"), lookups: 1},
		{name: "one of another driver runs", asked: claim("a"), running: claim("b") + ";" + claim("other"), lookups: 3},
		{name: "one too many", asked: claim("a"), running: claim("b") + ";" + claim("c"), lookups: 3, code: framework.Unschedulable},
		{name: "one is attached", asked: claim("a"), running: claim("b"), attached: "b", lookups: 2},
		{name: "a disk runs", asked: claim("ebs1"), running: claim("b") + ";awsElasticBlockStore: {volumeID: vol-2}", lookups: 2, code: framework.Unschedulable},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := objects(t)
			if test.attached != "" {
				all = append(all, plugintest.Yaml[storagev1.VolumeAttachment](t, "{metadata: {name: x}, spec: {attacher: csi.example.com, nodeName: n1, source: {persistentVolumeName: "+test.attached+"}}}"))
			}
			p, h := plugintest.New(t, Factory(), nil, all...)
			lookups := 0
			p.(*plugin).claims = countedClaims{p.(*plugin).claims, &lookups}
			running := pod(t, "running", test.running)
			running.Spec.NodeName = "n1"
			snapshot := plugintest.Snapshot([]*v1.Node{plugintest.Yaml[v1.Node](t, "metadata: {name: n1}")}, running)
			if s := plugintest.Filter(t, p, h, pod(t, "asked", test.asked), snapshot, "n1"); s.Code() != test.code || lookups != test.lookups {
				t.Errorf("%s after %d lookups, want %s after %d", s.Code(), lookups, test.code, test.lookups)
			}
		})
	}
}

// A CSIDriver may forbid nodes where it is not installed.
func TestMissingDriver(t *testing.T) {
	for _, test := range []struct {
		name, prevents, node, volume string
		features                     []string
		want                         string
	}{
		{name: "installed", prevents: "true", node: "n1", volume: claim("a")},
		{name: "not in the CSINode", prevents: "true", node: "unmigrated", volume: claim("a"), want: "csi.example.com CSI driver is not installed on the node"},
		{name: "no CSINode", prevents: "true", node: "unknown", volume: claim("w"), want: "csi.example.com CSI driver is not installed on the node"},
		{name: "an inline volume", prevents: "true", node: "unknown", volume: "csi: {driver: csi.example.com}", want: "csi.example.com CSI driver is not installed on the node"},
		{name: "the driver does not mind", prevents: "false", node: "unknown", volume: claim("a")},
		{name: "another driver", prevents: "true", node: "unknown", volume: claim("other")},
		{name: "the gate is off", prevents: "true", node: "unknown", volume: claim("a"), features: []string{"VolumeLimitScaling=false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			driver := plugintest.Yaml[storagev1.CSIDriver](t, "{metadata: {name: csi.example.com}, spec: {preventPodSchedulingIfMissing: "+test.prevents+"}}")
			p, h := plugintest.New(t, Factory(), test.features, append(objects(t), driver)...)
			snapshot := plugintest.Snapshot([]*v1.Node{plugintest.Yaml[v1.Node](t, "metadata: {name: "+test.node+"}")})
			s := plugintest.Filter(t, p, h, pod(t, "asked", test.volume), snapshot, test.node)
			if s.Message() != test.want || test.want != "" && s.Code() != framework.UnschedulableAndUnresolvable {
				t.Errorf("%s %q, want %q", s.Code(), s.Message(), test.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	p, _ := plugintest.New(t, Factory(), nil)
	asked := pod(t, "asked", claim("a"))
	node := func(drivers string) *storagev1.CSINode {
		return plugintest.Yaml[storagev1.CSINode](t, "{metadata: {name: n1}, spec: {drivers: ["+drivers+"]}}")
	}
	driver := func(prevents string) *storagev1.CSIDriver {
		return plugintest.Yaml[storagev1.CSIDriver](t, "{metadata: {name: x}, spec: {preventPodSchedulingIfMissing: "+prevents+"}}")
	}
	const two, three, unlimited = "{name: x, nodeID: i, allocatable: {count: 2}}", "{name: x, nodeID: i, allocatable: {count: 3}}", "{name: x, nodeID: i}"
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"a CSINode comes", framework.CSINode, framework.Add, nil, node(two), framework.Queue},
		{"a limit grows", framework.CSINode, framework.UpdateOther, node(two), node(three), framework.Queue},
		{"a limit shrinks", framework.CSINode, framework.UpdateOther, node(three), node(two), framework.QueueSkip},
		{"a limit goes", framework.CSINode, framework.UpdateOther, node(two), node(unlimited), framework.Queue},
		{"a limit comes", framework.CSINode, framework.UpdateOther, node(unlimited), node(two), framework.QueueSkip},
		{"a driver comes", framework.CSINode, framework.UpdateOther, node(""), node(two), framework.Queue},
		{"a pod with a claim goes", framework.AssignedPod, framework.Delete, pod(t, "gone", claim("b")), nil, framework.Queue},
		{"a pod with a disk goes", framework.AssignedPod, framework.Delete, pod(t, "gone", "gcePersistentDisk: {pdName: a}"), nil, framework.Queue},
		{"a pod without volumes goes", framework.AssignedPod, framework.Delete, pod(t, "gone", "emptyDir: {}"), nil, framework.QueueSkip},
		{"the claim comes", framework.PersistentVolumeClaim, framework.Add, nil, plugintest.Yaml[v1.PersistentVolumeClaim](t, "metadata: {namespace: default, name: a}"), framework.Queue},
		{"another claim comes", framework.PersistentVolumeClaim, framework.Add, nil, plugintest.Yaml[v1.PersistentVolumeClaim](t, "metadata: {namespace: other, name: a}"), framework.QueueSkip},
		{"a volume is detached", framework.VolumeAttachment, framework.Delete, &storagev1.VolumeAttachment{}, nil, framework.Queue},
		{"a driver need no longer be there", framework.CSIDriver, framework.UpdateOther, driver("true"), driver("false"), framework.Queue},
		{"a driver must be there now", framework.CSIDriver, framework.UpdateOther, driver("false"), driver("true"), framework.QueueSkip},
	} {
		if got, ok := plugintest.Hint(t, p, asked, test.resource, test.action, test.old, test.new); !ok || got != test.want {
			t.Errorf("%s: %v %t, want %v", test.name, got, ok, test.want)
		}
	}
}

// A volume that is detached makes room for volumes of its driver.
func TestHintOfDetachment(t *testing.T) {
	p, _ := plugintest.New(t, Factory(), nil, objects(t)...)
	for _, test := range []struct {
		volume, attacher string
		want             framework.QueueingHint
	}{
		{claim("a"), "csi.example.com", framework.Queue},
		{claim("a"), "other.example.com", framework.QueueSkip},
		{claim("w"), "csi.example.com", framework.Queue},
		{claim("missing"), "csi.example.com", framework.Queue},
		{"awsElasticBlockStore: {volumeID: vol-1}", "ebs.csi.aws.com", framework.Queue},
		{"gcePersistentDisk: {pdName: a}", "ebs.csi.aws.com", framework.QueueSkip},
	} {
		gone := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: test.attacher}}
		if got, ok := plugintest.Hint(t, p, pod(t, "asked", test.volume), framework.VolumeAttachment, framework.Delete, gone, nil); !ok || got != test.want {
			t.Errorf("%s, %s is detached: %v %t, want %v", test.volume, test.attacher, got, ok, test.want)
		}
	}
}
