package spec

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// References have each object once, those of volumes first.
func TestReferences(t *testing.T) {
	env := func(secret, configMap string) v1.Container {
		return v1.Container{
			EnvFrom: []v1.EnvFromSource{
				{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: secret + "-from"}}},
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: configMap + "-from"}}},
			},
			Env: []v1.EnvVar{
				{Name: "PLAIN", Value: "x"}, {Name: "FIELD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: secret}}}},
				{Name: "C", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: configMap}}}},
			},
		}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{{Name: "pull"}, {Name: ""}, {Name: "pull"}, {Name: "s"}},
		InitContainers:   []v1.Container{env("init-s", "init-c")},
		Containers:       []v1.Container{env("s", "c")},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "vol-s"}}},
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "vol-c"}}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "proj-s"}}},
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "proj-c"}}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}},
				{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}},
			}}}},
		},
	}}
	var want []Reference
	for _, text := range strings.Fields("s:vol-s c:vol-c s:proj-s c:proj-c b: s:init-s-from c:init-c-from s:init-s c:init-c s:s-from c:c-from s:s c:c s:pull") {
		kind, name, _ := strings.Cut(text, ":")
		want = append(want, Reference{map[string]ReferenceKind{"s": SecretReference, "c": ConfigMapReference, "b": TrustBundlesReference}[kind], name})
	}
	if got := References(pod); !slices.Equal(got, want) {
		t.Errorf("references %v, want %v", got, want)
	}
}
