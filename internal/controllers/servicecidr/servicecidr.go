// Package servicecidr is the ServiceCIDR controller. It sets the condition Ready
// of ServiceCIDRs and protects a deleted ServiceCIDR with a finalizer until no
// Service uses an address of it (KEP-1880).
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

// fieldManager is the field manager of the conditions.
const fieldManager = "service-cidrs-controller"

type cidrController struct {
	env       *controller.Env
	cidrs     networkinglisters.ServiceCIDRLister
	addresses networkinglisters.IPAddressLister
	queue     *controller.Queue[string]
}

func newController(env *controller.Env) (controller.Controller, error) {
	networking := env.Client.Informers.Networking().V1()
	k := &cidrController{env: env, cidrs: networking.ServiceCIDRs().Lister(), addresses: networking.IPAddresses().Lister()}
	k.queue = controller.NewQueue(env.Queues, "servicecidrs", controller.Existing[string](networking.ServiceCIDRs().Informer(), k.sync))
	return k, nil
}

// Run implements controller.Controller.
func (k *cidrController) Run(ctx context.Context) error {
	networking := k.env.Client.Informers.Networking().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(networking.ServiceCIDRs().Informer(), func(_, cidr *networkingv1.ServiceCIDR) {
			if cidr != nil {
				k.queue.Add(cidr.Name)
			}
			k.enqueueTerminating() // this one may contain them
		}),
		controller.On(networking.IPAddresses().Informer(), func(_, address *networkingv1.IPAddress) {
			if address == nil {
				k.enqueueTerminating()
			}
		}),
	}, k.queue.Workers(1))
}

// enqueueTerminating enqueues the ServiceCIDRs that are being deleted.
func (k *cidrController) enqueueTerminating() {
	all, err := k.cidrs.List(labels.Everything())
	if err != nil {
		return // listers of informers do not fail
	}
	for _, cidr := range all {
		if cidr.DeletionTimestamp != nil {
			k.queue.Add(cidr.Name)
		}
	}
}

func (k *cidrController) sync(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	all, err := k.cidrs.List(labels.Everything())
	if err != nil {
		return err
	}
	addresses, err := k.addresses.List(labels.Everything())
	if err != nil {
		return err
	}
	p := plan(cidr, all, addresses, time.Now())
	if p.after > 0 {
		k.queue.AddAfter(cidr.Name, p.after)
	}
	if err := k.apply(ctx, cidr, p); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing ServiceCIDR %s: %w", cidr.Name, err)
	}
	return nil
}

func (k *cidrController) apply(ctx context.Context, cidr *networkingv1.ServiceCIDR, p actions) error {
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

// prefixesOf returns the ranges of a ServiceCIDR. Validation admits no malformed
// ones.
func prefixesOf(cidr *networkingv1.ServiceCIDR) (prefixes []netip.Prefix) {
	for _, text := range cidr.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}
