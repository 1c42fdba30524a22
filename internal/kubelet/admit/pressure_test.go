package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPressure(t *testing.T) {
	memory, disk := []v1.NodeConditionType{v1.NodeMemoryPressure}, []v1.NodeConditionType{v1.NodeDiskPressure}
	priority := int32(2_000_000_000)
	tolerant := &v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}}}
	for name, test := range map[string]struct {
		pod        *v1.Pod
		class      v1.PodQOSClass
		conditions []v1.NodeConditionType
		want       string
	}{
		"no pressure":           {&v1.Pod{}, v1.PodQOSBestEffort, nil, ""},
		"best effort":           {&v1.Pod{}, v1.PodQOSBestEffort, memory, "The node had condition: [MemoryPressure]. "},
		"burstable":             {&v1.Pod{}, v1.PodQOSBurstable, memory, ""},
		"tolerates":             {tolerant, v1.PodQOSBestEffort, memory, ""},
		"disk":                  {&v1.Pod{}, v1.PodQOSGuaranteed, disk, "The node had condition: [DiskPressure]. "},
		"memory and disk":       {tolerant, v1.PodQOSBurstable, append(memory, disk...), "The node had condition: [MemoryPressure DiskPressure]. "},
		"system's priority":     {&v1.Pod{Spec: v1.PodSpec{Priority: &priority}}, v1.PodQOSBestEffort, disk, ""},
		"pretends to be static": {&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}}}, v1.PodQOSBestEffort, disk, "The node had condition: [DiskPressure]. "},
	} {
		got := ""
		if r := Pressure(test.pod, test.class, test.conditions); r != nil {
			got = r.Message
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A sidecar serves as long as its pod, an init container does not.
func TestHostPortsOfInitContainers(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	with := func(policy *v1.ContainerRestartPolicy) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{RestartPolicy: policy, Ports: []v1.ContainerPort{{HostPort: 8080}}}}}}
	}
	regular := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 8080}}}}}}
	for _, test := range []struct {
		name       string
		pod, other *v1.Pod
		want       string
	}{
		{"a sidecar and a container", with(&always), regular, "NodePorts"},
		{"a container and a sidecar", regular, with(&always), "NodePorts"},
		{"two sidecars", with(&always), with(&always), "NodePorts"},
		{"an init container", with(nil), regular, ""},
	} {
		got := ""
		if r := Check(test.pod, nil, []*v1.Pod{test.other}, nil, nil); r != nil {
			got = r.Reason
		}
		if got != test.want {
			t.Errorf("%s: rejected by %q, want %q", test.name, got, test.want)
		}
	}
}
