package dns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// The Service has the name that kubeadm gives it, so that manifests and tools
// find it.
const (
	serviceNamespace = metav1.NamespaceSystem
	serviceName      = "kube-dns"
	managedBy        = "dns.coracle"

	// metricsPort is CoreDNS's port of /metrics, which the Service has.
	metricsPort, metricsPortName = 9153, "metrics"
)

// announceBackoff returns the delays between attempts to announce.
func announceBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: math.MaxInt32, Cap: time.Minute}
}

// announceInterval is the time between two checks of what is announced. A check
// reads the informers alone.
const announceInterval = 30 * time.Second

// announce keeps the Service and this server's EndpointSlices: it creates them,
// and again when they were deleted or changed. While another DNS server, such as
// CoreDNS, answers for the Service, it withdraws them. When ctx ends, it deletes the
// slices.
func (s *Server) announce(ctx context.Context) error {
	published := false
	for ctx.Err() == nil {
		if !s.announced(s.wanted()) {
			err := announceBackoff().DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
				wanted, withdrawn := s.wanted() // anew: an attempt changes them
				if err := s.publish(ctx, wanted, withdrawn); err != nil {
					klog.FromContext(ctx).Error(err, "Announcing the cluster DNS failed; trying again")
					return false, nil
				}
				return true, nil
			})
			published = published || err == nil
		} else {
			published = true
		}
		supervise.Pause(ctx, announceInterval)
	}
	if !published {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	slices := s.config.Client.Kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace)
	for _, slice := range s.endpointSlices() {
		if err := slices.Delete(last, slice.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).V(2).Info("Endpoints of the cluster DNS left behind", "slice", slice.Name, "err", err)
		}
	}
	return nil
}

// wanted returns this server's EndpointSlices, apart from those of address types for
// which the Service has a ready endpoint that is no server of this program.
func (s *Server) wanted() (wanted, withdrawn []*discoveryv1.EndpointSlice) {
	of, err := s.view.slices.ByIndex(byService, serviceNamespace+"/"+serviceName)
	if err != nil {
		return s.endpointSlices(), nil
	}
	others := map[discoveryv1.AddressType]bool{}
	for _, obj := range of {
		slice := obj.(*discoveryv1.EndpointSlice)
		if slice.Labels[discoveryv1.LabelManagedBy] == managedBy {
			continue
		}
		for i := range slice.Endpoints {
			if ready := slice.Endpoints[i].Conditions.Ready; ready == nil || *ready {
				others[slice.AddressType] = true
			}
		}
	}
	for _, own := range s.endpointSlices() {
		if others[own.AddressType] {
			withdrawn = append(withdrawn, own)
		} else {
			wanted = append(wanted, own)
		}
	}
	return wanted, withdrawn
}

// announced reports whether the informers have the Service and of this server's
// EndpointSlices those that are wanted, and not those that are withdrawn.
func (s *Server) announced(wanted, withdrawn []*discoveryv1.EndpointSlice) bool {
	if _, exists, err := s.view.services.GetByKey(serviceNamespace + "/" + serviceName); err != nil || !exists {
		return false
	}
	for _, own := range withdrawn {
		if _, exists, err := s.view.slices.GetByKey(own.Namespace + "/" + own.Name); err != nil || exists {
			return false
		}
	}
	for _, want := range wanted {
		obj, exists, err := s.view.slices.GetByKey(want.Namespace + "/" + want.Name)
		if err != nil || !exists || !sameEndpoints(obj.(*discoveryv1.EndpointSlice), want) {
			return false
		}
	}
	return true
}

func sameEndpoints(have, want *discoveryv1.EndpointSlice) bool {
	return have.Labels[discoveryv1.LabelServiceName] == serviceName &&
		equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports)
}

// publish creates the Service if it is missing, writes the EndpointSlices that are
// wanted, and deletes those that are withdrawn.
func (s *Server) publish(ctx context.Context, wanted, withdrawn []*discoveryv1.EndpointSlice) error {
	services := s.config.Client.Kubernetes.CoreV1().Services(serviceNamespace)
	exists := func() (bool, error) {
		there, err := services.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, serviceName).String()})
		return err == nil && len(there.Items) > 0, err
	}
	// Do not create it blindly: the API server would refuse the address, which
	// the Service has, and not the name.
	there, err := exists()
	if err == nil && !there {
		_, err = services.Create(ctx, s.service(), metav1.CreateOptions{})
		if err != nil { // another server may have created it since
			if there, _ := exists(); there {
				err = nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("create Service %s: %w", serviceName, err)
	}
	slices := s.config.Client.Kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace)
	for _, own := range withdrawn {
		if err := slices.Delete(ctx, own.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete EndpointSlice %s: %w", own.Name, err)
		}
	}
	for _, want := range wanted {
		have, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = slices.Create(ctx, want, metav1.CreateOptions{})
		case err == nil && !sameEndpoints(have, want):
			want.ResourceVersion = have.ResourceVersion
			_, err = slices.Update(ctx, want, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write EndpointSlice %s: %w", want.Name, err)
		}
	}
	return nil
}

// service returns the Service. It has no selector: the servers write its
// endpoints.
func (s *Server) service() *v1.Service {
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName, Namespace: serviceNamespace,
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS", "kubernetes.io/cluster-service": "true"},
		},
		Spec: v1.ServiceSpec{
			ClusterIP: s.config.Announce[0], ClusterIPs: s.config.Announce,
			Ports: []v1.ServicePort{
				{Name: "dns", Protocol: v1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(int32(s.config.Port))},
				{Name: "dns-tcp", Protocol: v1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(int32(s.config.Port))},
			},
		},
	}
	if len(s.config.Announce) > 1 {
		service.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicyRequireDualStack)
	}
	if s.config.MetricsPort != 0 {
		service.Annotations = map[string]string{"prometheus.io/port": strconv.Itoa(metricsPort), "prometheus.io/scrape": "true"}
		service.Spec.Ports = append(service.Spec.Ports, v1.ServicePort{
			Name: metricsPortName, Protocol: v1.ProtocolTCP, Port: metricsPort, TargetPort: intstr.FromInt32(int32(s.config.MetricsPort)),
		})
	}
	return service
}

// sliceName returns the name of the EndpointSlice of the server on a node.
func sliceName(node string, t discoveryv1.AddressType) string {
	return serviceName + "-" + node + "-" + strings.ToLower(string(t))
}

// Withdraw deletes the EndpointSlices of the server on a node that is gone, which the
// server has left if it was killed.
func Withdraw(ctx context.Context, client kubernetes.Interface, node string) error {
	var errs []error
	for _, t := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		err := client.DiscoveryV1().EndpointSlices(serviceNamespace).Delete(ctx, sliceName(node, t), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete EndpointSlice %s: %w", sliceName(node, t), err))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) endpointSlices() []*discoveryv1.EndpointSlice {
	byType := map[discoveryv1.AddressType][]string{}
	for _, text := range s.config.Addresses {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.IsLoopback() {
			continue
		}
		ip = ip.Unmap() // slices have addresses in the canonical notation
		t := discoveryv1.AddressTypeIPv6
		if ip.Is4() {
			t = discoveryv1.AddressTypeIPv4
		}
		byType[t] = append(byType[t], ip.String())
	}
	ready, port := true, int32(s.config.Port)
	udp, tcp := v1.ProtocolUDP, v1.ProtocolTCP
	udpName, tcpName := "dns", "dns-tcp"
	ports := []discoveryv1.EndpointPort{{Name: &udpName, Protocol: &udp, Port: &port}, {Name: &tcpName, Protocol: &tcp, Port: &port}}
	if s.config.MetricsPort != 0 {
		ports = append(ports, discoveryv1.EndpointPort{Name: new(metricsPortName), Protocol: &tcp, Port: new(int32(s.config.MetricsPort))})
	}
	var out []*discoveryv1.EndpointSlice
	for t, addresses := range byType {
		out = append(out, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: sliceName(s.config.NodeName, t), Namespace: serviceNamespace,
				Labels: map[string]string{discoveryv1.LabelServiceName: serviceName, discoveryv1.LabelManagedBy: managedBy},
			},
			AddressType: t,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: addresses, NodeName: &s.config.NodeName,
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			}},
			Ports: ports,
		})
	}
	return out
}
