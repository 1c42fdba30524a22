package pod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestPodLevelDefaults checks which pod-level resources follow from those of
// the containers, and the class of the pod.
func TestPodLevelDefaults(t *testing.T) {
	const (
		limited   = `{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}`
		unlimited = `{requests: {cpu: 1}}`
		pages     = `{limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi}}`
	)
	for name, test := range map[string]struct {
		pod   string
		each  []string // the resources of the containers
		want  string
		class corev1.PodQOSClass
	}{
		"none":          {pod: `{}`, each: []string{limited}, want: `{}`, class: corev1.PodQOSBurstable},
		"limit":         {pod: `{limits: {cpu: 4}}`, each: []string{unlimited, unlimited}, want: `{requests: {cpu: 2}, limits: {cpu: 4}}`, class: corev1.PodQOSBurstable},
		"limit of none": {pod: `{limits: {cpu: 4, memory: 1Gi}}`, each: []string{`{}`}, want: `{requests: {cpu: 4, memory: 1Gi}, limits: {cpu: 4, memory: 1Gi}}`, class: corev1.PodQOSGuaranteed},
		"request":       {pod: `{requests: {cpu: 2}}`, each: []string{`{requests: {memory: 1Gi}}`}, want: `{requests: {cpu: 2}}`, class: corev1.PodQOSBurstable},
		"request, all containers limited": {pod: `{requests: {cpu: 2}}`, each: []string{limited, limited},
			want: `{requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 4, memory: 2Gi}}`, class: corev1.PodQOSBurstable},
		"request, one container limited": {pod: `{requests: {cpu: 2}}`, each: []string{limited, unlimited}, want: `{requests: {cpu: 2}}`, class: corev1.PodQOSBurstable},
		"all limited, class":             {pod: `{requests: {cpu: 4}}`, each: []string{limited, limited}, want: `{requests: {cpu: 4, memory: 2Gi}, limits: {cpu: 4, memory: 2Gi}}`, class: corev1.PodQOSGuaranteed},
		"huge pages of containers": {pod: `{limits: {cpu: 2}}`, each: []string{pages, `{}`},
			want: `{requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi}, limits: {cpu: 2, hugepages-2Mi: 4Mi}}`, class: corev1.PodQOSBurstable},
		"more huge pages than those of containers": {pod: `{limits: {cpu: 2, hugepages-2Mi: 8Mi}}`, each: []string{pages},
			want: `{requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 8Mi}, limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 8Mi}}`, class: corev1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "{}")
			p.Spec.Containers = nil
			for i, each := range test.each {
				c := corev1.Container{Name: string(rune('a' + i)), Image: "i"}
				decode(t, each, &c.Resources)
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
			var want corev1.ResourceRequirements
			decode(t, test.want, &want)
			p.Spec.Resources = &corev1.ResourceRequirements{}
			decode(t, test.pod, p.Spec.Resources)
			r := pod.Pods()
			r.Hub().Default(p)
			if errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: noon, Namespace: "default"}, p); len(errs) > 0 {
				t.Error(errs)
			}
			if !resource.Equal(*p.Spec.Resources, want) {
				t.Errorf("pod-level resources %v, want %v", p.Spec.Resources, want)
			}
			if p.Status.QOSClass != test.class {
				t.Errorf("class %s, want %s", p.Status.QOSClass, test.class)
			}
			// Reading the stored pod changes nothing.
			stored := p.DeepCopy()
			r.Hub().Default(stored)
			if !resource.Equal(stored.Spec, p.Spec) {
				t.Errorf("the stored pod is read with the resources %v", stored.Spec.Resources)
			}
		})
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
