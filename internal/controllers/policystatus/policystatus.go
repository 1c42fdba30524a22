// Package policystatus is the ValidatingAdmissionPolicy status controller. It checks the
// types in the expressions of policies against the schemas of the resources that they
// match, and writes the warnings to the status (KEP-3488).
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

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 5
	return controller.Descriptor{
		Name:           "validatingadmissionpolicy-status-controller",
		Aliases:        []string{"validatingadmissionpolicy-status"},
		ServiceAccount: "validatingadmissionpolicy-status-controller",
		EventSource:    "validatingadmissionpolicy-status-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-validating-admission-policy-status-syncs", "validating admission policies"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

// fieldManager is the field manager of the status.
const fieldManager = "validatingadmissionpolicy-status"

type checker struct {
	env     *controller.Env
	workers int
	check   func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning
	queue   *controller.Queue[string]
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	served := env.Client.Kubernetes.Discovery()
	types := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: served},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served)),
	}
	return newChecker(env, workers, func(p *admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning {
		celamount.Bound()
		return types.Check(p)
	}), nil
}

func newChecker(env *controller.Env, workers int, check func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning) *checker {
	c := &checker{env: env, workers: workers, check: check}
	c.queue = controller.NewQueue(env.Queues, "validatingadmissionpolicy-status", controller.Existing[string](env.Client.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer(), c.sync))
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
	}, c.queue.Workers(c.workers))
}

func (c *checker) sync(ctx context.Context, policy *admissionv1.ValidatingAdmissionPolicy) error {
	if policy.Status.ObservedGeneration >= policy.Generation {
		return nil
	}
	warnings := apply.TypeChecking()
	for _, w := range c.check(policy) {
		warnings.WithExpressionWarnings(apply.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	_, err := c.env.Client.Kubernetes.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		apply.ValidatingAdmissionPolicy(policy.Name).WithStatus(apply.ValidatingAdmissionPolicyStatus().
			WithObservedGeneration(policy.Generation).WithTypeChecking(warnings)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of policy %s: %w", policy.Name, err)
	}
	return nil
}
