package source

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where a pod comes from is what decides, not what is written on it.
func TestTheSourceDecides(t *testing.T) {
	annotated := func(key, value string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}
	}
	for _, test := range []struct {
		from           string
		pod            *v1.Pod
		static, mirror bool
	}{
		{APIName, &v1.Pod{}, false, false},
		{APIName, annotated(AnnotationSource, FolderName), false, false},
		{APIName, annotated(AnnotationHash, "1"), false, false},
		{APIName, annotated(v1.MirrorPodAnnotationKey, "1"), false, true},
		{FolderName, &v1.Pod{}, true, false},
		{FolderName, annotated(AnnotationSource, APIName), true, false},
		{URLName, annotated(v1.MirrorPodAnnotationKey, "1"), true, false},
	} {
		u := Update{Source: test.from, Pod: test.pod}
		if u.IsStatic() != test.static || u.IsMirror() != test.mirror {
			t.Errorf("from %s with %v: static %v, mirror %v", test.from, test.pod.Annotations, u.IsStatic(), u.IsMirror())
		}
	}
}

func TestNamesOfManifests(t *testing.T) {
	const container = "{name: main, image: a}"
	for manifest, want := range map[string]string{
		"{kind: Pod, metadata: {name: web}, spec: {containers: [" + container + "]}}":                                                                              "",
		"{kind: Pod, metadata: {name: web, uid: 11d0a3c2-0a2b-4c5d-8e9f-001122334455, namespace: kube-system}, spec: {containers: [" + container + "]}}":           "",
		"{kind: Pod, metadata: {name: web, uid: 0123456789abcdef0123456789abcdef}, spec: {containers: [" + container + "]}}":                                       "",
		"{kind: Pod, metadata: {name: web, uid: web-1}, spec: {containers: [" + container + "]}}":                                                                  "metadata.uid",
		"{kind: Pod, metadata: {name: web, uid: 11D0A3C2-0A2B-4C5D-8E9F-001122334455}, spec: {containers: [" + container + "]}}":                                   "metadata.uid",
		"{kind: Pod, metadata: {name: ../web}, spec: {containers: [" + container + "]}}":                                                                           "metadata.name",
		"{kind: Pod, metadata: {}, spec: {containers: [" + container + "]}}":                                                                                       "metadata.name",
		"{kind: Pod, metadata: {name: web, namespace: a/b}, spec: {containers: [" + container + "]}}":                                                              "metadata.namespace",
		"{kind: Pod, metadata: {name: web, uid: ../../etc}, spec: {containers: [" + container + "]}}":                                                              "metadata.uid",
		"{kind: Pod, metadata: {name: web}, spec: {containers: [{name: ../x, image: a}]}}":                                                                         "container",
		"{kind: Pod, metadata: {name: web}, spec: {volumes: [{name: .., emptyDir: {}}], containers: [" + container + "]}}":                                         "volume",
		"{kind: PodList, items: [{metadata: {name: web, uid: ../../etc}, spec: {containers: [" + container + "]}}]}":                                               "metadata.uid",
		"{kind: PodList, items: [{metadata: {name: a}, spec: {containers: [" + container + "]}}, {metadata: {name: b}, spec: {containers: [" + container + "]}}]}": "",
	} {
		_, err := decode([]byte(manifest), FolderName, "alpha")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", manifest, err, want)
		}
	}
}
