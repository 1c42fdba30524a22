// Package clusterroleaggregation is the ClusterRole aggregation controller. It
// sets the rules of each ClusterRole with an aggregation rule to the rules of
// the ClusterRoles that it selects.
package clusterroleaggregation

import (
	"context"
	"slices"
	"strings"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "clusterrole-aggregation-controller",
		Aliases:        []string{"clusterrole-aggregation"},
		ServiceAccount: "clusterrole-aggregation-controller",
		EventSource:    "clusterrole-aggregation-controller",
		New:            newController,
	}
}

type aggregator struct {
	env   *controller.Env
	kube  kubernetes.Interface
	roles rbaclisters.ClusterRoleLister
	queue *controller.Queue[string]
}

func newController(env *controller.Env) (controller.Controller, error) {
	c := &aggregator{env: env, kube: env.Client.Kubernetes, roles: env.Client.Informers.Rbac().V1().ClusterRoles().Lister()}
	c.queue = controller.NewQueue(env.Queues, "ClusterRoleAggregator", controller.Existing[string](env.Client.Informers.Rbac().V1().ClusterRoles().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *aggregator) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Rbac().V1().ClusterRoles().Informer(), func(_, _ *rbac.ClusterRole) {
			all, err := c.roles.List(labels.Everything())
			if err != nil {
				return
			}
			for _, role := range all {
				if role.AggregationRule != nil {
					c.queue.Add(role.Name)
				}
			}
		}),
	}, c.queue.Workers(5))
}

// aggregate returns the union of the rules of all roles that the selectors of a
// role match, ordered by selector and name.
func aggregate(role *rbac.ClusterRole, all []*rbac.ClusterRole) ([]rbac.PolicyRule, error) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *rbac.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	var rules []rbac.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range sorted {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules, func(have rbac.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

func (c *aggregator) sync(ctx context.Context, role *rbac.ClusterRole) error {
	if role.AggregationRule == nil {
		return nil
	}
	all, err := c.roles.List(labels.Everything())
	if err != nil {
		return err
	}
	rules, err := aggregate(role, all)
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return err
	}
	next := role.DeepCopy()
	next.Rules = rules
	_, err = c.kube.RbacV1().ClusterRoles().Update(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}
