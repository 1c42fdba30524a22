package volumerestrictions

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

func pod(t *testing.T, name, volume string) *v1.Pod {
	p := plugintest.Yaml[v1.Pod](t, "spec: {volumes: [{name: v, "+volume+"}]}")
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	return p
}

func running(p *v1.Pod, node string) *v1.Pod {
	p.Spec.NodeName = node
	return p
}

func nodes(t *testing.T, names ...string) (all []*v1.Node) {
	for _, name := range names {
		all = append(all, plugintest.Yaml[v1.Node](t, "metadata: {name: "+name+"}"))
	}
	return all
}

func TestDisks(t *testing.T) {
	for _, test := range []struct {
		name, volume, other string
		conflict            bool
	}{
		{"GCE: one that writes", "gcePersistentDisk: {pdName: a}", "gcePersistentDisk: {pdName: a, readOnly: true}", true},
		{"GCE: both read", "gcePersistentDisk: {pdName: a, readOnly: true}", "gcePersistentDisk: {pdName: a, readOnly: true}", false},
		{"GCE: two disks", "gcePersistentDisk: {pdName: a}", "gcePersistentDisk: {pdName: b}", false},
		{"EBS: even if both read", "awsElasticBlockStore: {volumeID: a, readOnly: true}", "awsElasticBlockStore: {volumeID: a, readOnly: true}", true},
		{"EBS: two disks", "awsElasticBlockStore: {volumeID: a}", "awsElasticBlockStore: {volumeID: b}", false},
		{"iSCSI: one that writes", "iscsi: {targetPortal: h1, iqn: a, lun: 1}", "iscsi: {targetPortal: h2, iqn: a, lun: 2}", true},
		{"iSCSI: both read", "iscsi: {targetPortal: h1, iqn: a, lun: 1, readOnly: true}", "iscsi: {targetPortal: h1, iqn: a, lun: 1, readOnly: true}", false},
		{"RBD: a common monitor", "rbd: {monitors: [h1, h2], pool: p, image: i}", "rbd: {monitors: [h2], pool: p, image: i}", true},
		{"RBD: no common monitor", "rbd: {monitors: [h1], pool: p, image: i}", "rbd: {monitors: [h2], pool: p, image: i}", false},
		{"RBD: another image", "rbd: {monitors: [h1], pool: p, image: i}", "rbd: {monitors: [h1], pool: p, image: j}", false},
		{"RBD: both read", "rbd: {monitors: [h1], pool: p, image: i, readOnly: true}", "rbd: {monitors: [h1], pool: p, image: i, readOnly: true}", false},
		{"two kinds", "awsElasticBlockStore: {volumeID: a}", "gcePersistentDisk: {pdName: a}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, h := plugintest.New(t, Factory(), nil)
			snapshot := plugintest.Snapshot(nodes(t, "n1", "m1"), running(pod(t, "other", test.other), "n1"))
			asked := pod(t, "asked", test.volume)
			want := framework.Success
			if test.conflict {
				want = framework.Unschedulable
			}
			s := plugintest.Filter(t, p, h, asked, snapshot, "n1")
			if s.Code() != want || test.conflict && s.Message() != "node(s) had no available disk" {
				t.Errorf("beside the other pod: %s %s, want %s", s.Code(), s.Message(), want)
			}
			if s := plugintest.Filter(t, p, h, asked, snapshot, "m1"); !s.IsSuccess() {
				t.Errorf("on another node: %s", s.Message())
			}
			gone := pod(t, "gone", test.other)
			gone.Namespace = "elsewhere"
			if hint, _ := plugintest.Hint(t, p, asked, framework.AssignedPod, framework.Delete, gone, nil); (hint == framework.Queue) != test.conflict {
				t.Errorf("when the other pod goes: %v", hint)
			}
		})
	}
}

func claim(t *testing.T, name, mode string) *v1.PersistentVolumeClaim {
	return plugintest.Yaml[v1.PersistentVolumeClaim](t, "{metadata: {namespace: default, name: "+name+"}, spec: {accessModes: ["+mode+"]}}")
}

// Only one pod of the cluster can use a claim with ReadWriteOncePod. Preemption
// can free the claim for another pod.
func TestReadWriteOncePod(t *testing.T) {
	p, h := plugintest.New(t, Factory(), nil, claim(t, "once", "ReadWriteOncePod"), claim(t, "many", "ReadWriteMany"))
	use := func(name string) *v1.Pod { return pod(t, name, "persistentVolumeClaim: {claimName: once}") }
	stranger := use("stranger")
	stranger.Namespace = "elsewhere"
	snapshot := plugintest.Snapshot(nodes(t, "n1", "m1"), running(use("user"), "n1"), running(stranger, "m1"))
	for _, node := range []string{"n1", "m1"} {
		s := plugintest.Filter(t, p, h, use("asked"), snapshot, node)
		if s.Code() != framework.Unschedulable || s.Message() != "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode" {
			t.Errorf("%s: %s %s", node, s.Code(), s.Message())
		}
	}
	if s := plugintest.Filter(t, p, h, pod(t, "asked", "persistentVolumeClaim: {claimName: many}"), snapshot, "n1"); !s.IsSkip() {
		t.Errorf("a claim for many pods: %s", s.Code())
	}
	s := plugintest.Filter(t, p, h, pod(t, "asked", "persistentVolumeClaim: {claimName: absent}"), snapshot, "n1")
	if s.Code() != framework.UnschedulableAndUnresolvable || s.Message() != `persistentvolumeclaim "absent" not found` {
		t.Errorf("a claim that is not there: %s %s", s.Code(), s.Message())
	}

	plug := p.(*plugin)
	state, asked, user, node := framework.NewCycleState(h), framework.NewPodInfo(use("asked")), framework.NewPodInfo(use("user")), snapshot.Node("n1")
	if _, s := plug.PreFilter(t.Context(), state, asked, snapshot); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	for i, step := range []struct {
		change func()
		want   framework.Code
	}{
		{func() {}, framework.Unschedulable},
		{func() { plug.RemovePod(t.Context(), state, asked, user, node) }, framework.Success},
		{func() { plug.AddPod(t.Context(), state, asked, framework.NewPodInfo(stranger), node) }, framework.Success},
		{func() { plug.AddPod(t.Context(), state, asked, user, node) }, framework.Unschedulable},
	} {
		step.change()
		if s := plug.Filter(t.Context(), state, asked, node); s.Code() != step.want {
			t.Errorf("step %d: %s, want %s", i, s.Code(), step.want)
		}
	}
}

func TestHints(t *testing.T) {
	p, _ := plugintest.New(t, Factory(), nil)
	asked := pod(t, "asked", "persistentVolumeClaim: {claimName: once}")
	for _, test := range []struct {
		name     string
		resource framework.EventResource
		action   framework.ActionType
		old, new any
		want     framework.QueueingHint
	}{
		{"the user of the claim goes", framework.AssignedPod, framework.Delete, pod(t, "user", "persistentVolumeClaim: {claimName: once}"), nil, framework.Queue},
		{"another pod goes", framework.AssignedPod, framework.Delete, pod(t, "user", "persistentVolumeClaim: {claimName: other}"), nil, framework.QueueSkip},
		{"the claim comes", framework.PersistentVolumeClaim, framework.Add, nil, claim(t, "once", "ReadWriteOncePod"), framework.Queue},
		{"another claim comes", framework.PersistentVolumeClaim, framework.Add, nil, claim(t, "other", "ReadWriteOncePod"), framework.QueueSkip},
		{"a node comes", framework.Node, framework.Add, nil, &v1.Node{}, framework.Queue},
	} {
		if got, ok := plugintest.Hint(t, p, asked, test.resource, test.action, test.old, test.new); !ok || got != test.want {
			t.Errorf("%s: %v %t, want %v", test.name, got, ok, test.want)
		}
	}
}
