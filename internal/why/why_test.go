package why

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func node(name, cpu string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("10")},
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

// unscheduled asks for two cpu.
func unscheduled() *v1.Pod {
	p := bound()
	p.Spec.NodeName, p.Status = "", v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."}}}
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
	return p
}

func smaller() *v1.Pod {
	p := unscheduled()
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("500m")
	return p
}

func report(t *testing.T, o Options, objects ...runtime.Object) (*Report, *fake.Clientset) {
	t.Helper()
	c := fake.NewSimpleClientset(objects...)
	o.Kubernetes, o.Namespace, o.Name = c, "default", "p"
	r, err := Pod(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			t.Errorf("it would %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	return r, c
}

// TestClaimOfAnotherPod checks that a claim that has the name of a pod's
// ephemeral volume's and was not made for the pod is reported.
func TestClaimOfAnotherPod(t *testing.T) {
	pod := unscheduled()
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p-data", UID: "c"}}
	r, _ := report(t, Options{}, pod, claim, node("n1", "4"))
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Reason == "NotOwned" })
	if i < 0 || r.Findings[i].Subject != "PersistentVolumeClaim p-data" {
		t.Errorf("findings: %+v", r.Findings)
	}
}

func TestReports(t *testing.T) {
	ready := bound(runs(true, true))
	ready.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	for _, c := range []struct {
		name          string
		objects       []runtime.Object
		whatIf        []runtime.Object
		state, answer string
		node          string // that the scheduler would choose
	}{
		{"does not fit", []runtime.Object{unscheduled(), node("n1", "1")}, nil, "pending", "the only node, n1, cannot take it", ""},
		{"no nodes", []runtime.Object{unscheduled()}, nil, "pending", "the cluster has no nodes", ""},
		{"fits by now", []runtime.Object{unscheduled(), node("n1", "4")}, nil, "pending", "nothing is in its way any more, and the scheduler will try again: it would go to node n1", "n1"},
		{"a larger node", []runtime.Object{unscheduled(), node("n1", "1")}, []runtime.Object{node("n1", "4")}, "pending", "with the change it would go to node n1", "n1"},
		{"another node", []runtime.Object{unscheduled(), node("n1", "1")}, []runtime.Object{node("n2", "4")}, "pending", "with the change it would go to node n2", "n2"},
		{"a smaller pod", []runtime.Object{unscheduled(), node("n1", "1")}, []runtime.Object{smaller()}, "pending", "with the change it would go to node n1", "n1"},
		{"ready", []runtime.Object{ready, node("n1", "4")}, nil, "ready", "it has been ready on node n1 for 0s", "n1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := report(t, Options{WhatIf: c.whatIf}, c.objects...)
			if r.State != c.state || r.Answer != c.answer || r.Scheduling == nil || r.Scheduling.Node != c.node {
				t.Errorf("state %q, answer %q, scheduling %+v; want %q, %q, node %q", r.State, r.Answer, r.Scheduling, c.state, c.answer, c.node)
			}
		})
	}
}

// The pod has no condition while the scheduler waits for a volume.
func TestRefusedClaimIsTheAnswer(t *testing.T) {
	pod := smaller()
	pod.Status.Conditions = nil
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "c", Annotations: map[string]string{"volume.kubernetes.io/selected-node": "n1"}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: new("local"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
	refused := event("ProvisioningFailed", "access mode ReadWriteMany is not supported")
	refused.Namespace, refused.Name, refused.InvolvedObject.UID = "default", "e", "c"
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "example.com/local", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	const want = "PersistentVolumeClaim data: the scheduler has chosen node n1 and waits for a volume (StorageClass local): access mode ReadWriteMany is not supported"
	if r, _ := report(t, Options{}, pod, node("n1", "4"), claim, class, &refused); r.State != pending || r.Answer != want {
		t.Errorf("state %q, answer %q; want %q", r.State, r.Answer, want)
	}
}

func TestWhatIfIsChecked(t *testing.T) {
	bad := smaller()
	bad.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("-1")
	elsewhere := smaller()
	elsewhere.Name = "other"
	for want, object := range map[string]runtime.Object{
		"spec.containers[0].resources.requests[cpu]": bad,
		"spec.nodeName":                elsewhere,
		"a Service cannot be replaced": &v1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service"}},
	} {
		c := fake.NewSimpleClientset(unscheduled(), node("n1", "1"))
		_, err := Pod(t.Context(), Options{Kubernetes: c, Namespace: "default", Name: "p", WhatIf: []runtime.Object{object}})
		if err == nil || !strings.Contains(err.Error(), "--what-if: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// Without permissions, the report is incomplete and names the missing
// permissions.
func TestMissingRights(t *testing.T) {
	c := fake.NewSimpleClientset(unscheduled())
	c.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", fmt.Errorf("no"))
	})
	r, err := Pod(t.Context(), Options{Kubernetes: c, Namespace: "default", Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answer != "the scheduler says: 0/1 nodes are available: 1 Insufficient cpu." || r.Scheduling != nil {
		t.Errorf("answer %q, scheduling %v", r.Answer, r.Scheduling)
	}
	if all := strings.Join(r.NotRead, "\n"); !strings.Contains(all, "nodes is forbidden") || !strings.Contains(all, "events is forbidden") {
		t.Errorf("not read: %s", all)
	}
}

func TestLogsAreInTheReport(t *testing.T) {
	crashing := bound(waitingFor("CrashLoopBackOff", ""), lastEnded(1, "Error"))
	r, _ := report(t, Options{}, crashing, node("n1", "4"))
	if len(r.Findings) != 1 || len(r.Findings[0].Log) != 1 || r.State != "not ready" || r.Scheduling != nil { // the fake client answers "fake logs"
		t.Errorf("report %+v", r)
	}
	if r, _ := report(t, Options{Scheduling: true}, crashing, node("n1", "4")); r.Scheduling == nil {
		t.Error("no scheduling with Options.Scheduling")
	}
	r, _ = report(t, Options{}, bound(phase(v1.PodSucceeded)), node("n1", "4"))
	if r.State != "finished" || r.Scheduling != nil {
		t.Errorf("a finished pod: %+v", r)
	}
	gone := bound(func(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = ptr.To(before(0)), []string{"example.com/f"} })
	if r, _ = report(t, Options{}, gone, node("n1", "4")); r.State != "being deleted" {
		t.Errorf("a pod that is being deleted: %+v", r)
	}
}
