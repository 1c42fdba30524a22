// Package servicecidr tells of every ServiceCIDR whether addresses may be
// taken from it, and keeps one that is deleted until no Service depends on it
// (KEP-1880).
//
//	ServiceCIDR ──▶ finalizer, Ready=True
//	deleted     ──▶ Ready=False (Terminating) while addresses of its own are in use ──▶ grace period ──▶ gone
package servicecidr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/networking/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "service-cidr-controller",
		Aliases:        []string{"service-cidr"},
		ServiceAccount: "service-cidrs-controller",
		EventSource:    fieldManager,
		New:            newController,
	}
}

// fieldManager owns the conditions.
const fieldManager = "service-cidrs-controller"

type keeper struct {
	env       *controller.Env
	cidrs     networkinglisters.ServiceCIDRLister
	addresses networkinglisters.IPAddressLister
	queue     *controller.Queue[string]
}

func newController(env *controller.Env) (controller.Controller, error) {
	networking := env.Client.Informers.Networking().V1()
	k := &keeper{env: env, cidrs: networking.ServiceCIDRs().Lister(), addresses: networking.IPAddresses().Lister()}
	k.queue = controller.NewQueue("servicecidrs", controller.Existing[string](networking.ServiceCIDRs().Informer(), k.sync))
	return k, nil
}

// Run implements controller.Controller.
func (k *keeper) Run(ctx context.Context) error {
	networking := k.env.Client.Informers.Networking().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(networking.ServiceCIDRs().Informer(), func(_, cidr *networkingv1.ServiceCIDR) {
			if cidr != nil {
				k.queue.Add(cidr.Name)
			}
			k.addDeleted() // they may be part of this one
		}),
		controller.On(networking.IPAddresses().Informer(), func(_, address *networkingv1.IPAddress) {
			if address == nil {
				k.addDeleted()
			}
		}),
	}, k.queue.Workers(1))
}

// addDeleted has those looked at that are deleted but still there.
func (k *keeper) addDeleted() {
	all, err := k.cidrs.List(labels.Everything())
	if err != nil {
		return // a lister of an informer does not fail
	}
	for _, cidr := range all {
		if cidr.DeletionTimestamp != nil {
			k.queue.Add(cidr.Name)
		}
	}
}

func (k *keeper) sync(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	all, err := k.cidrs.List(labels.Everything())
	if err != nil {
		return err
	}
	addresses, err := k.addresses.List(labels.Everything())
	if err != nil {
		return err
	}
	p := decide(cidr, all, addresses, time.Now())
	if p.after > 0 {
		k.queue.AddAfter(cidr.Name, p.after)
	}
	if err := k.carryOut(ctx, cidr, p); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing ServiceCIDR %s: %w", cidr.Name, err)
	}
	return nil
}

func (k *keeper) carryOut(ctx context.Context, cidr *networkingv1.ServiceCIDR, p plan) error {
	client := k.env.Client.Kubernetes.NetworkingV1().ServiceCIDRs()
	if !slices.Equal(p.finalizers, cidr.Finalizers) {
		next := cidr.DeepCopy()
		next.Finalizers = p.finalizers
		if _, err := client.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return err
		}
	}
	if p.condition == nil {
		return nil
	}
	condition := metaapply.Condition().WithType(p.condition.Type).WithStatus(p.condition.Status).WithReason(p.condition.Reason).
		WithMessage(p.condition.Message).WithLastTransitionTime(p.condition.LastTransitionTime)
	_, err := client.ApplyStatus(ctx, apply.ServiceCIDR(cidr.Name).WithStatus(apply.ServiceCIDRStatus().WithConditions(condition)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// prefixesOf are the ranges of a ServiceCIDR that can be read; validation
// lets no other in.
func prefixesOf(cidr *networkingv1.ServiceCIDR) (prefixes []netip.Prefix) {
	for _, text := range cidr.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}
