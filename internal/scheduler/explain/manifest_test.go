package explain

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/supervise"
)

const aContainer = `{name: a, image: a, resources: {requests: {cpu: "1"}}}`

func podsOf(t *testing.T, manifest string) ([]*v1.Pod, error) {
	t.Helper()
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	a, err := NewAdmission(t.Context(), fake.NewSimpleClientset(high), "here")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Decode([]byte(manifest))
	if err != nil {
		return nil, err
	}
	m, err := a.Manifest(objects)
	if err != nil {
		return nil, err
	}
	return m.Pods, nil
}

func TestPodsOfManifests(t *testing.T) {
	template := `template: {metadata: {labels: {app: a}}, spec: {containers: [` + aContainer + `]}}`
	for _, c := range []struct{ name, manifest, want string }{
		{"a pod", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [" + aContainer + "]}", "[here/p]"},
		{"documents", "---\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: x}\nspec: {containers: [" + aContainer + "]}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2, selector: {matchLabels: {app: a}}, " + template + "}", "[x/p here/d-0 here/d-1]"},
		{"a list", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}]}`, "[here/p]"},
		{"a job", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 3, completions: 2, template: {spec: {restartPolicy: Never, containers: [" + aContainer + "]}}}", "[here/j-0 here/j-1]"},
		{"a StatefulSet with a start", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\nspec: {replicas: 2, ordinals: {start: 5}, selector: {matchLabels: {app: a}}, " + template + "}", "[here/s-5 here/s-6]"},
		{"the highest priority first", "apiVersion: v1\nkind: Pod\nmetadata: {name: low}\nspec: {containers: [" + aContainer + "]}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {priorityClassName: high, containers: [" + aContainer + "]}", "[here/p here/low]"},
		{"other kinds", "apiVersion: example.com/v1\nkind: Custom\nmetadata: {name: c}", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pods, err := podsOf(t, c.manifest)
			names := []string{}
			for _, p := range pods {
				names = append(names, p.Namespace+"/"+p.Name)
				if p.Spec.SchedulerName != v1.DefaultSchedulerName || p.UID == "" || len(p.Spec.Tolerations) != 2 {
					t.Errorf("pod %s has no defaults: %+v", p.Name, p.Spec)
				}
			}
			if got := fmt.Sprint(names); err != nil || got != c.want {
				t.Errorf("pods %s, error %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestBadManifests(t *testing.T) {
	for manifest, want := range map[string]string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}":                                            "pod p: spec.containers: Required value",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {colour: red, containers: [" + aContainer + "]}":             `document 1: strict decoding error: unknown field "spec.colour"`,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {priorityClassName: none, containers: [" + aContainer + "]}": "spec.priorityClassName: no PriorityClass with name none was found",
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}":                                                         "DaemonSet d: its pods are made for one node each",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2000000000}":                          "Deployment d: more than 10000 pods",
		"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: r}\nspec: {replicas: -1}":                                  "ReplicaSet r: the number of pods is -1",
		"apiVersion: v1\nkind: ReplicationController\nmetadata: {name: r}":                                                  "ReplicationController r: spec.template: Required value",
		"not: [yaml": "document 1: ",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, spec: {colour: red}}]": "document 1: items[0]: ",
	} {
		if _, err := podsOf(t, manifest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\nerror %v, want %s", manifest, err, want)
		}
	}
}

// dryRun decides about the pods in a cluster of the objects.
func dryRun(t *testing.T, configuration config.Configuration, objects []runtime.Object, pods ...*v1.Pod) *DryRun {
	t.Helper()
	var d *DryRun
	err := supervise.Run(t.Context(), func(ctx context.Context) (err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o := Options{Kubernetes: fake.NewSimpleClientset(objects...), Configuration: configuration}
		if o.Cluster, err = Load(ctx, o.Kubernetes); err != nil {
			return err
		}
		d, err = Dry(ctx, o, &Manifest{Pods: pods})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Two pods of a dry run cannot have one volume.
func TestDryRunTakesVolumes(t *testing.T) {
	claim := func(name string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: v1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("local"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
	}
	with := func(name string) *v1.Pod {
		return pod("of-"+name, spec(func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		}))
	}
	d := dryRun(t, config.Configuration{}, []runtime.Object{
		node("a"), claim("c1"), claim("c2"),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		&v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "disk"},
			Spec: v1.PersistentVolumeSpec{
				StorageClassName: "local", AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}},
				NodeAffinity:           &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{expression(v1.LabelHostname, v1.NodeSelectorOpIn, "a")}}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
		},
	}, with("c1"), with("c2"))
	if d.Placed != 1 || d.Pods[0].Node != "a" || !strings.Contains(d.Pods[1].Message, "didn't find available persistent volumes to bind") {
		t.Errorf("placed %d: %q, %q: %s", d.Placed, d.Pods[0].Node, d.Pods[1].Node, d.Pods[1].Message)
	}
}

func TestExtendersAreNotAsked(t *testing.T) {
	d := dryRun(t, config.Configuration{Extenders: []config.Extender{{URLPrefix: "http://extender.example"}}}, []runtime.Object{node("a")}, pod("p"))
	if diff := cmp.Diff([]string{"extender http://extender.example: extenders are not asked"}, d.NotRead); diff != "" {
		t.Errorf("not read (-want +got):\n%s", diff)
	}
}

func TestClaimsOfStatefulSets(t *testing.T) {
	pods, err := podsOf(t, "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {selector: {matchLabels: {app: a}}, volumeClaimTemplates: [{metadata: {name: data}}], "+
		"template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: a, volumeMounts: [{name: data, mountPath: /data}]}]}}}")
	if err != nil || len(pods) != 1 || len(pods[0].Spec.Volumes) != 1 || pods[0].Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-db-0" {
		t.Errorf("pods %+v, error %v", pods, err)
	}
}

func TestDryRun(t *testing.T) {
	d := dryRun(t, config.Configuration{}, []runtime.Object{node("a"), node("b"), pod("x", on("a"), requests("3", "1Gi"))},
		pod("p0", requests("4", "1Gi")), pod("p1"), pod("p2"))
	var nodes []string
	for _, p := range d.Pods {
		nodes = append(nodes, p.Node)
	}
	if diff := cmp.Diff([]string{"b", "a", ""}, nodes); diff != "" || d.Placed != 2 {
		t.Errorf("placed %d, nodes (-want +got):\n%s", d.Placed, diff)
	}
	var b strings.Builder
	d.WriteText(&b)
	for _, want := range []string{"2 of 3 pods would be placed.\n", "default/p2  <none>", "0/2 nodes are available: 2 Insufficient cpu.", "Why default/p2 has no place: none of the 2 nodes can take it.", "What would help, one of:\n- on node a: free 1 cpu on node a"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// The text of a decision, as people see it.
func TestText(t *testing.T) {
	d := explained(t, Options{}, pod("p", requests("3", "1Gi")), node("a", taint("dedicated=gpu", v1.TaintEffectNoSchedule)), node("b"), pod("x", on("b"), requests("2", "1Gi")))
	want := `none of the 2 nodes can take it

NODE  PLUGIN            WHY NOT
a     TaintToleration   taint dedicated=gpu:NoSchedule is not tolerated
b     NodeResourcesFit  cpu: 3 requested, 2 of 4 free

What would help, one of:
- on node a: kubectl taint node a dedicated=gpu:NoSchedule-
  or add the toleration {key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}
- on node b: free 1 cpu on node b, or request at most 2 cpu
`
	if diff := cmp.Diff(want, text(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
