package statefulset

import (
	"maps"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
)

// A pod that has lost what makes it the one of its ordinal gets it back.
func TestIdentity(t *testing.T) {
	eachVolume := func(change func(*v1.Volume)) func(*v1.Pod) {
		return func(p *v1.Pod) {
			for i := range p.Spec.Volumes {
				change(&p.Spec.Volumes[i])
			}
		}
	}
	set := setOf(3, apps.OrderedReadyPodManagement, 0)
	for name, lose := range map[string]func(*v1.Pod){
		"all labels":       func(p *v1.Pod) { p.Labels = nil },
		"label of the pod": func(p *v1.Pod) { delete(p.Labels, apps.StatefulSetPodNameLabel) },
		"label of another": func(p *v1.Pod) { p.Labels[apps.PodIndexLabel] = "2" },
		"volumes":          func(p *v1.Pod) { p.Spec.Volumes = nil },
		"claims":           eachVolume(func(v *v1.Volume) { v.PersistentVolumeClaim = nil }),
		"claim of another": eachVolume(func(v *v1.Volume) { v.PersistentVolumeClaim.ClaimName = "data-db-2" }),
	} {
		pod := newPod(set, &set.Spec.Template, "new", 1)
		if !identityMatches(set, pod, 1) {
			t.Fatalf("a new pod: %v", pod)
		}
		lose(pod)
		if identityMatches(set, pod, 1) {
			t.Errorf("%s: nothing is missing", name)
		}
		if setIdentity(set, pod, 1); !identityMatches(set, pod, 1) || len(pod.Spec.Volumes) != 1 {
			t.Errorf("%s: still missing: %v", name, pod)
		}
	}
	for name, want := range map[string]bool{"db-1": true, "db-01": false, "db-": false, "1-db": false, "web-1": false, "db": false} {
		pod := &v1.Pod{}
		pod.Name = name
		if ordinal, ok := ordinalOf(set, pod); ok != want || ok && ordinal != 1 {
			t.Errorf("%s: ordinal %d, %t", name, ordinal, ok)
		}
	}
}

func TestLabelsOfClaims(t *testing.T) {
	type labels = map[string]string
	for _, c := range []struct{ template, selector, want labels }{
		{nil, nil, nil},
		{nil, labels{"app": "db"}, labels{"app": "db"}},
		{labels{"tier": "data"}, nil, labels{"tier": "data"}},
		{labels{"tier": "data"}, labels{"app": "db"}, labels{"tier": "data", "app": "db"}},
		{labels{"app": "other"}, labels{"app": "db"}, labels{"app": "db"}},
	} {
		set := setOf(1, apps.OrderedReadyPodManagement, 0)
		set.Spec.Selector.MatchLabels, set.Spec.VolumeClaimTemplates[0].Labels = c.selector, c.template
		if got := claims(set, 3)[0]; !maps.Equal(got.Labels, c.want) || got.Name != "data-db-3" || got.Namespace != "default" {
			t.Errorf("%v of the template, %v of the selector: %v", c.template, c.selector, got.ObjectMeta)
		}
	}
}
