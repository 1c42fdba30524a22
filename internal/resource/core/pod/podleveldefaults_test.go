package pod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
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
		"request":       {pod: `{requests: {cpu: 2}}`, each: []string{`{requests: {memory: 1Gi}}`}, want: `{requests: {cpu: 2, memory: 1Gi}}`, class: corev1.PodQOSBurstable},
		"request, all containers limited": {pod: `{requests: {cpu: 2}}`, each: []string{limited, limited},
			want: `{requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 4, memory: 2Gi}}`, class: corev1.PodQOSBurstable},
		"request, one container limited": {pod: `{requests: {cpu: 2}}`, each: []string{limited, unlimited}, want: `{requests: {cpu: 2, memory: 1Gi}}`, class: corev1.PodQOSBurstable},
		"all limited, class":             {pod: `{requests: {cpu: 4}}`, each: []string{limited, limited}, want: `{requests: {cpu: 4, memory: 2Gi}, limits: {cpu: 4, memory: 2Gi}}`, class: corev1.PodQOSGuaranteed},
		"request that is more than the limits": {pod: `{requests: {cpu: 9}}`, each: []string{limited},
			want: `{requests: {cpu: 9, memory: 1Gi}, limits: {cpu: 9, memory: 1Gi}}`, class: corev1.PodQOSGuaranteed},
		"limit of memory": {pod: `{requests: {memory: 4Gi}, limits: {memory: 4Gi}}`, each: []string{limited, limited},
			want: `{requests: {cpu: 2, memory: 4Gi}, limits: {cpu: 4, memory: 4Gi}}`, class: corev1.PodQOSBurstable},
		"another resource": {pod: `{requests: {cpu: 1}}`, each: []string{`{requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}}`},
			want: `{requests: {cpu: 1}}`, class: corev1.PodQOSBurstable},
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

// TestPodLevelDefaultsWithoutTheFix checks that requests follow only in pods with limits,
// and no limits beside those for huge pages.
func TestPodLevelDefaultsWithoutTheFix(t *testing.T) {
	features, err := feature.Parse([]string{"PodLevelResourcesFixDefaulting=false"})
	if err != nil {
		t.Fatal(err)
	}
	for given, text := range map[string]string{
		`{requests: {cpu: 2}}`: `{requests: {cpu: 2}}`,
		`{limits: {cpu: 4}}`:   `{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 4}}`,
	} {
		var want corev1.ResourceRequirements
		decode(t, text, &want)
		p := newPod(t, "{}")
		decode(t, `{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}`, &p.Spec.Containers[0].Resources)
		p.Spec.Resources = &corev1.ResourceRequirements{}
		decode(t, given, p.Spec.Resources)
		r := pod.Pods()
		r.Hub().Default(p)
		old := p.DeepCopy()
		if errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, p); len(errs) > 0 {
			t.Error(errs)
		}
		if !resource.Equal(*p.Spec.Resources, want) {
			t.Errorf("%s: pod-level resources %v, want %v", given, p.Spec.Resources, want)
		}
		old.ResourceVersion, old.Generation = "1", 1
		next := old.DeepCopy()
		resource.PrepareUpdate(r, nil, &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, next, old)
		if !resource.Equal(*next.Spec.Resources, want) {
			t.Errorf("%s: pod-level resources %v of an update, want %v", given, next.Spec.Resources, want)
		}
	}
}

// TestPodLevelResourcesOfUpdates checks that an update without pod-level resources keeps
// those of the pod, and that a resize completes them.
func TestPodLevelResourcesOfUpdates(t *testing.T) {
	const (
		half    = `{requests: {cpu: 100m, memory: 128Mi}}`
		limited = `{requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 200m, memory: 256Mi}}`
		both    = `{requests: {cpu: 200m, memory: 256Mi}, limits: {cpu: 200m, memory: 256Mi}}`
		asked   = `{requests: {cpu: 200m, memory: 256Mi}}`
	)
	for name, test := range map[string]struct {
		endpoint       string
		old, next      string   // of the pod; "" is none
		was, is        []string // of the containers; without is they do not change
		want           string
		withoutTheGate string // "" is none
	}{
		"update without them":           {old: both, was: []string{limited}, want: both},
		"update of a pod without them":  {was: []string{limited}},
		"update to others":              {old: both, next: `{requests: {cpu: 300m}}`, was: []string{limited}, want: `{requests: {cpu: 300m}}`, withoutTheGate: `{requests: {cpu: 300m}}`},
		"resize without them":           {endpoint: "resize", old: both, was: []string{limited}, want: both},
		"resize of a pod without them":  {endpoint: "resize", was: []string{limited}},
		"resize that adds them":         {endpoint: "resize", next: asked, was: []string{limited}, want: both, withoutTheGate: asked},
		"containers get limits":         {endpoint: "resize", old: asked, next: asked, was: []string{half}, is: []string{limited}, want: both, withoutTheGate: asked},
		"another resource":              {endpoint: "resize", old: `{requests: {memory: 256Mi}}`, next: `{requests: {cpu: 100m}}`, was: []string{limited}, want: limited, withoutTheGate: `{requests: {cpu: 100m}}`},
		"empty ones":                    {endpoint: "resize", old: `{requests: {memory: 256Mi}}`, next: `{}`, was: []string{limited}, want: `{}`, withoutTheGate: `{}`},
		"more of all":                   {endpoint: "resize", old: both, next: `{requests: {cpu: 300m, memory: 300Mi}}`, was: []string{limited}, want: `{requests: {cpu: 300m, memory: 300Mi}, limits: {cpu: 300m, memory: 300Mi}}`, withoutTheGate: `{requests: {cpu: 300m, memory: 300Mi}}`},
		"one container without limits":  {endpoint: "resize", old: asked, next: asked, was: []string{limited, half}, want: asked, withoutTheGate: asked},
		"the last container is limited": {endpoint: "resize", old: asked, next: asked, was: []string{limited, half}, is: []string{limited, `{requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 200m}}`}, want: `{requests: {cpu: 200m, memory: 256Mi}, limits: {cpu: 400m}}`, withoutTheGate: asked},
	} {
		for gate, want := range map[string]string{"true": test.want, "false": test.withoutTheGate} {
			features, err := feature.Parse([]string{"PodLevelResourcesFixDefaulting=" + gate})
			if err != nil {
				t.Fatal(err)
			}
			old, next := podOf(t, test.old, test.was), podOf(t, test.next, test.was)
			if test.is != nil {
				next = podOf(t, test.next, test.is)
			}
			r := pod.Pods()
			var endpoint *resource.Subresource
			if test.endpoint != "" {
				endpoint = r.Subresource(test.endpoint)
			}
			resource.PrepareUpdate(r, endpoint, &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, next, old)
			if wanted := podOf(t, want, test.was).Spec.Resources; !resource.Equal(next.Spec.Resources, wanted) {
				t.Errorf("%s, gate %s: %v, want %v", name, gate, next.Spec.Resources, wanted)
			}
		}
	}
}

// podOf returns a stored pod with the resources of the whole, none for "", and of each
// container.
func podOf(t *testing.T, whole string, each []string) *corev1.Pod {
	t.Helper()
	p := storedPod(t, "{}")
	p.Spec.Containers = nil
	for i, text := range each {
		c := corev1.Container{Name: string(rune('a' + i)), Image: "i"}
		decode(t, text, &c.Resources)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if whole != "" {
		p.Spec.Resources = &corev1.ResourceRequirements{}
		decode(t, whole, p.Spec.Resources)
	}
	return p
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
