package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Pods for other systems are refused, whatever says that they are.
func TestOperatingSystem(t *testing.T) {
	for want, spec := range map[string]v1.PodSpec{
		"":                                   {OS: &v1.PodOS{Name: v1.Linux}, NodeSelector: map[string]string{v1.LabelOSStable: "linux"}},
		"PodOSNotSupported":                  {OS: &v1.PodOS{Name: v1.Windows}},
		"PodOSSelectorNodeLabelDoesNotMatch": {NodeSelector: map[string]string{v1.LabelOSStable: "windows"}},
	} {
		got := ""
		if r := Check(&v1.Pod{Spec: spec}, nil, nil, nil, nil); r != nil {
			got = r.Reason
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
