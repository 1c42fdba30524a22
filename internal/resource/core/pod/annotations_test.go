package pod_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestProfileAnnotations checks that the annotations of old clients must be
// well formed and must name the same profile as the fields.
func TestProfileAnnotations(t *testing.T) {
	const (
		seccomp  = "seccomp.security.alpha.kubernetes.io/pod"
		apparmor = "container.apparmor.security.beta.kubernetes.io/"
	)
	for name, test := range map[string]struct{ key, value, spec, want string }{
		"good":         {key: seccomp, value: "runtime/default"},
		"unknown":      {key: seccomp, value: "mine", want: `metadata.annotations.` + seccomp + `: Invalid value: "mine": must be a valid seccomp profile`},
		"climbing":     {key: seccomp, value: "localhost/../x", want: `metadata.annotations.` + seccomp + `: Invalid value: "../x": must not contain '..'`},
		"disagreeing":  {key: seccomp, value: "unconfined", spec: `{securityContext: {seccompProfile: {type: RuntimeDefault}}}`, want: `spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match`},
		"other file":   {key: seccomp, value: "localhost/a", spec: `{securityContext: {seccompProfile: {type: Localhost, localhostProfile: b}}}`, want: `spec.securityContext.seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match`},
		"no container": {key: apparmor + "d", value: "unconfined", want: `metadata.annotations[` + apparmor + `d]: Invalid value: "d": container not found`},
		"no profile":   {key: apparmor + "c", value: "mine", want: `metadata.annotations[` + apparmor + `c]: Invalid value: "mine": invalid AppArmor profile name: "mine"`},
		"apparmor": {key: apparmor + "c", value: "unconfined", spec: `{containers: [{name: c, image: i, securityContext: {appArmorProfile: {type: RuntimeDefault}}}]}`,
			want: `spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, test.spec)
			p.Annotations = map[string]string{test.key: test.value}
			var got []string
			for _, err := range resourcetest.BeforeCreate(pod.Pods(), &resource.RequestContext{Now: noon, Namespace: "default"}, p) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != test.want {
				t.Errorf("got %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestProfileAnnotationsOfATemplate checks the same of the pods that a template
// makes.
func TestProfileAnnotationsOfATemplate(t *testing.T) {
	p := newPod(t, `{containers: [{name: c, image: i, securityContext: {seccompProfile: {type: Unconfined}, appArmorProfile: {type: RuntimeDefault}}}]}`)
	template := &corev1.PodTemplateSpec{Spec: p.Spec}
	template.Annotations = map[string]string{
		corev1.SeccompContainerAnnotationKeyPrefix + "c":                "runtime/default",
		corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": "unconfined",
	}
	var got []string
	for _, err := range pod.ValidateTemplate(template, field.NewPath("template"), pod.Options{}) {
		got = append(got, err.Error())
	}
	want := []string{
		"template.spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
		"template.spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
