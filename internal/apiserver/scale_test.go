package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// spy records the scales that admission sees, as webhooks would receive them,
// and doubles the requested replicas.
type spy struct{ seen []string }

func (s *spy) Handles(admission.Operation) bool { return true }

func (s *spy) Admit(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetSubresource() == "scale" {
		s.note("admit", a, o)
		if scale, ok := a.GetObject().(*autoscalingv1.Scale); ok {
			scale.Spec.Replicas *= 2
		}
	}
	return nil
}

func (s *spy) Validate(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetSubresource() == "scale" {
		s.note("validate", a, o)
	}
	return nil
}

func (s *spy) note(step string, a admission.Attributes, o admission.ObjectInterfaces) {
	replicas := func(obj runtime.Object) any {
		converted, err := o.GetObjectConvertor().ConvertToVersion(obj, a.GetKind().GroupVersion())
		if err != nil {
			return err
		}
		return converted.(*autoscalingv1.Scale).Spec.Replicas
	}
	s.seen = append(s.seen, fmt.Sprintf("%s %s: %v to %v", step, a.GetKind().Kind, replicas(a.GetOldObject()), replicas(a.GetObject())))
}

// Webhooks and policies for scales see Scales, not the objects that are scaled.
func TestAdmissionSeesScales(t *testing.T) {
	s := &spy{}
	server := apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Admission = s })
	const path = "/apis/apps/v1/namespaces/default/replicasets"
	do(t, server, 201, "POST", path, `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"x"}]}}}}`)
	scaled := do(t, server, 200, "PUT", path+"/web/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":3}}`)
	if string(scaled.Spec) != `{"replicas":6}` {
		t.Errorf("scaled to %s", scaled.Spec)
	}
	do(t, server, 200, "PATCH", path+"/web/scale", `{"spec":{"replicas":5}}`, "Content-Type", "application/merge-patch+json")
	want := []string{"admit Scale: 2 to 3", "validate Scale: 2 to 6", "admit Scale: 6 to 5", "validate Scale: 6 to 10"}
	if !slices.Equal(s.seen, want) {
		t.Errorf("seen %q, want %q", s.seen, want)
	}
}
