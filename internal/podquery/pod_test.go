package podquery_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/podquery"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestQOSClass(t *testing.T) {
	both := list("cpu", "1", "memory", "1Gi")
	guaranteed := v1.Container{Resources: v1.ResourceRequirements{Limits: both}}
	for name, test := range map[string]struct {
		spec   v1.PodSpec
		status v1.PodQOSClass
		want   v1.PodQOSClass
	}{
		"nothing":             {spec: v1.PodSpec{Containers: []v1.Container{{}}}, want: v1.PodQOSBestEffort},
		"only limits":         {spec: v1.PodSpec{Containers: []v1.Container{guaranteed}}, want: v1.PodQOSGuaranteed},
		"equal requests":      {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: both, Requests: both}}}}, want: v1.PodQOSGuaranteed},
		"only requests":       {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: both}}}}, want: v1.PodQOSBurstable},
		"only a CPU limit":    {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list("cpu", "1")}}}}, want: v1.PodQOSBurstable},
		"a lower request":     {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: both, Requests: list("cpu", "500m")}}}}, want: v1.PodQOSBurstable},
		"other resources":     {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list("ephemeral-storage", "1Gi")}}}}, want: v1.PodQOSBestEffort},
		"negative quantities": {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("cpu", "-1", "memory", "-1")}}}}, want: v1.PodQOSBestEffort},
		"an init container without resources": {
			spec: v1.PodSpec{InitContainers: []v1.Container{{}}, Containers: []v1.Container{guaranteed}}, want: v1.PodQOSBurstable,
		},
		"an ephemeral container without resources": {
			spec: v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{{}}, Containers: []v1.Container{guaranteed}}, want: v1.PodQOSGuaranteed,
		},
		"resources of the pod": {
			spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Limits: both}, Containers: []v1.Container{{}}}, want: v1.PodQOSGuaranteed,
		},
		"the status": {spec: v1.PodSpec{Containers: []v1.Container{{}}}, status: v1.PodQOSGuaranteed, want: v1.PodQOSGuaranteed},
	} {
		pod := &v1.Pod{Spec: test.spec, Status: v1.PodStatus{QOSClass: test.status}}
		if got := podquery.QOSClass(pod); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestContainers(t *testing.T) {
	spec := &v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}},
		Containers:          []v1.Container{{Name: "a"}, {Name: "b"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}
	var names, sidecars []string
	for c := range podquery.AllContainers(spec) {
		names = append(names, c.Name)
		if podquery.IsSidecar(c) {
			sidecars = append(sidecars, c.Name)
		}
		c.Image = "seen"
	}
	if want := []string{"init", "sidecar", "a", "b", "debug"}; !slices.Equal(names, want) {
		t.Errorf("all containers: %v, want %v", names, want)
	}
	if want := []string{"sidecar"}; !slices.Equal(sidecars, want) {
		t.Errorf("sidecars: %v, want %v", sidecars, want)
	}
	if spec.EphemeralContainers[0].Image != "seen" || spec.Containers[1].Image != "seen" {
		t.Error("the containers are copies, not the specification's")
	}
	for c := range podquery.AllContainers(spec) { // stops at once
		if c.Name == "sidecar" {
			break
		}
	}
	if c := podquery.Container(spec, "debug"); c == nil || c.Name != "debug" {
		t.Errorf("debug: %v", c)
	}
	if c := podquery.Container(spec, "absent"); c != nil {
		t.Errorf("absent: %v, want nil", c)
	}
}

func TestConditions(t *testing.T) {
	var s v1.PodStatus
	if podquery.Condition(&s, v1.PodReady) != nil || podquery.HasCondition(&s, v1.PodReady) {
		t.Error("an empty status has a condition")
	}
	podquery.SetCondition(&s, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse})
	podquery.SetCondition(&s, v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue})
	if podquery.IsReady(&v1.Pod{Status: s}) || !podquery.HasCondition(&s, v1.PodInitialized) {
		t.Errorf("not as set: %v", s.Conditions)
	}
	podquery.SetCondition(&s, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
	if !podquery.IsReady(&v1.Pod{Status: s}) || len(s.Conditions) != 2 {
		t.Errorf("not replaced: %v", s.Conditions)
	}
}

func TestPhases(t *testing.T) {
	for phase, finished := range map[v1.PodPhase]bool{
		v1.PodPending: false, v1.PodRunning: false, v1.PodUnknown: false, "": false, v1.PodSucceeded: true, v1.PodFailed: true,
	} {
		pod := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
		if podquery.IsFinished(pod) != finished || podquery.IsActive(pod) == finished || podquery.IsTerminating(pod) {
			t.Errorf("%q: finished %t, active %t", phase, podquery.IsFinished(pod), podquery.IsActive(pod))
		}
	}
}

func TestTolerates(t *testing.T) {
	taint := &v1.Taint{Key: "k", Value: "5", Effect: v1.TaintEffectNoSchedule}
	for name, test := range map[string]struct {
		toleration    v1.Toleration
		numeric, want bool
	}{
		"exists":               {v1.Toleration{Operator: v1.TolerationOpExists}, false, true},
		"another value":        {v1.Toleration{Key: "k", Value: "6"}, false, false},
		"greater, not counted": {v1.Toleration{Key: "k", Operator: v1.TolerationOpGt, Value: "4"}, false, false},
		"greater":              {v1.Toleration{Key: "k", Operator: v1.TolerationOpGt, Value: "4"}, true, true},
	} {
		if got := podquery.Tolerates([]v1.Toleration{{Key: "other"}, test.toleration}, taint, test.numeric); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
	if podquery.Tolerates(nil, taint, true) {
		t.Error("no toleration tolerates")
	}
}
