package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/apps"
	"github.com/coracle-io/coracle/internal/resource/batch"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
)

// TestNameWarnings checks which new objects get a warning about a dot in their
// name, and that updates get none.
func TestNameWarnings(t *testing.T) {
	const after = ", which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
	for _, test := range []struct {
		resource *resource.Resource
		use      string
	}{
		{pod.Pods(), "the Pod's hostname"},
		{core.ReplicationControllers(), "Pod names and hostnames"},
		{apps.ReplicaSets(), "Pod names and hostnames"},
		{apps.Deployments(), "Pod names and hostnames"},
		{batch.Jobs(), "Pod names and hostnames"},
		{batch.CronJobs(), "Pod names and hostnames"},
	} {
		o := test.resource.Hub().New()
		o.SetName("a.b")
		if rc, ok := o.(*corev1.ReplicationController); ok {
			rc.Spec.Template = &corev1.PodTemplateSpec{}
		}
		want := []string{"metadata.name: this is used in " + test.use + after}
		if diff := cmp.Diff(want, test.resource.Strategy.Warnings(&resource.RequestContext{}, o, nil)); diff != "" {
			t.Errorf("%s: %s", test.resource.Plural, diff)
		}
		if got := test.resource.Strategy.Warnings(&resource.RequestContext{}, o, o); len(got) > 0 {
			t.Errorf("%s, updated: %q", test.resource.Plural, got)
		}
	}
}

func TestServiceAccountWarnings(t *testing.T) {
	strict := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{core.MountableSecretsAnnotation: "true"}}}
	want := []string{"metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
	accounts := core.ServiceAccounts()
	if diff := cmp.Diff(want, accounts.Strategy.Warnings(&resource.RequestContext{}, strict, nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, accounts.Strategy.Warnings(&resource.RequestContext{}, strict, &corev1.ServiceAccount{})); diff != "" {
		t.Error(diff)
	}
	if got := accounts.Strategy.Warnings(&resource.RequestContext{}, strict, strict); len(got) > 0 {
		t.Errorf("not newly set: %q", got)
	}
}
