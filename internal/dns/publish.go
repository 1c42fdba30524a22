package dns

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	serviceNamespace = metav1.NamespaceSystem
	serviceName      = "kube-dns"
	managedBy        = "dns.coracle.io"
)

// publish makes Service kube-dns and this server's endpoint of it, and tries
// again until it has or ctx ends. The endpoint stays when the server ends: on
// one node there is no other to ask, and the next server here replaces it.
func (s *Server) publish(ctx context.Context) {
	if !s.config.ServiceIP.IsValid() {
		return
	}
	for {
		err := s.ensureService(ctx)
		if err == nil {
			err = s.ensureSlice(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("Publishing the cluster DNS address failed; trying again", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *Server) ensureService(ctx context.Context) error {
	services := s.config.Client.Kubernetes.CoreV1().Services(serviceNamespace)
	_, err := services.Get(ctx, serviceName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	port := func(name string, protocol v1.Protocol) v1.ServicePort {
		return v1.ServicePort{Name: name, Protocol: protocol, Port: 53, TargetPort: intstr.FromInt32(int32(s.bound.Port()))}
	}
	_, err = services.Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName, Namespace: serviceNamespace,
			Labels: map[string]string{
				"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
			},
		},
		Spec: v1.ServiceSpec{
			ClusterIP: s.config.ServiceIP.String(),
			Ports:     []v1.ServicePort{port("dns", v1.ProtocolUDP), port("dns-tcp", v1.ProtocolTCP)},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// slice is this server as an endpoint.
func (s *Server) slice() *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if s.bound.Addr().Unmap().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	port := func(name string, protocol v1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: ptr.To(name), Protocol: ptr.To(protocol), Port: ptr.To(int32(s.bound.Port()))}
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName + "-" + s.config.NodeName, Namespace: serviceNamespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: serviceName, discoveryv1.LabelManagedBy: managedBy},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{port("dns", v1.ProtocolUDP), port("dns-tcp", v1.ProtocolTCP)},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{s.bound.Addr().Unmap().String()},
			NodeName:   ptr.To(s.config.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		}},
	}
}

func (s *Server) ensureSlice(ctx context.Context) error {
	slices := s.config.Client.Kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace)
	wanted := s.slice()
	existing, err := slices.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if existing.AddressType != wanted.AddressType {
		// The family of a slice cannot be changed.
		if err := slices.Delete(ctx, wanted.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		_, err = slices.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	updated := existing.DeepCopy()
	updated.Ports, updated.Endpoints = wanted.Ports, wanted.Endpoints
	_, err = slices.Update(ctx, updated, metav1.UpdateOptions{})
	return err
}
