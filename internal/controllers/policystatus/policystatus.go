// Package policystatus checks the types of the expressions of
// ValidatingAdmissionPolicies against the schemas of what they match, and
// writes what it finds to their statuses (KEP-3488).
package policystatus

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "validatingadmissionpolicy-status-controller",
		Aliases:        []string{"validatingadmissionpolicy-status"},
		ServiceAccount: "validatingadmissionpolicy-status-controller",
		EventSource:    "validatingadmissionpolicy-status-controller",
		New:            newController,
	}
}

// fieldManager owns the statuses' fields.
const fieldManager = "validatingadmissionpolicy-status"

type checker struct {
	env   *controller.Env
	check func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning
	queue *controller.Queue[string]
}

func newController(env *controller.Env) (controller.Controller, error) {
	served := env.Client.Kubernetes.Discovery()
	types := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: served},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served)),
	}
	return newChecker(env, types.Check), nil
}

func newChecker(env *controller.Env, check func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning) *checker {
	c := &checker{env: env, check: check}
	c.queue = controller.NewQueue("validatingadmissionpolicy-status", controller.Existing[string](env.Client.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer(), c.sync))
	return c
}

// Run implements controller.Controller.
func (c *checker) Run(ctx context.Context) error {
	policies := c.env.Client.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	return controller.Serve(ctx, []controller.Source{
		controller.On(policies, func(_, policy *admissionv1.ValidatingAdmissionPolicy) {
			if policy != nil && policy.Status.ObservedGeneration < policy.Generation {
				c.queue.Add(policy.Name)
			}
		}),
	}, c.queue.Workers(5))
}

func (c *checker) sync(ctx context.Context, policy *admissionv1.ValidatingAdmissionPolicy) error {
	if policy.Status.ObservedGeneration >= policy.Generation {
		return nil
	}
	found := apply.TypeChecking()
	for _, w := range c.check(policy) {
		found.WithExpressionWarnings(apply.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	_, err := c.env.Client.Kubernetes.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		apply.ValidatingAdmissionPolicy(policy.Name).WithStatus(apply.ValidatingAdmissionPolicyStatus().
			WithObservedGeneration(policy.Generation).WithTypeChecking(found)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing what was found in policy %s: %w", policy.Name, err)
	}
	return nil
}
