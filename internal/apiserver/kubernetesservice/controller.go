// Package kubernetesservice maintains the Service default/kubernetes, through
// which pods reach the API servers, and its endpoints:
//
//	/registry/masterleases/{ip}   one for each API server, renewed by it
//	          │ those that have not expired
//	          ▼
//	Endpoints and EndpointSlice default/kubernetes ◄── Service default/kubernetes
//
// It also maintains the Lease that identifies each API server (KEP-1965).
package kubernetesservice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Config says where clients reach this API server.
type Config struct {
	Client kubernetes.Interface
	Store  store.Store
	// Address and Port are where members of the cluster reach this server.
	Address netip.Addr
	Port    int32
	// ServiceAddress is the cluster IP of the Service: the first of the range.
	ServiceAddress netip.Addr
	// WithoutEndpoints leaves the endpoints of the Service alone.
	WithoutEndpoints bool
	// Hostname is this machine's. The server's identity is derived from it.
	Hostname string
}

const (
	name        = "kubernetes"
	namespace   = metav1.NamespaceDefault
	portName    = "https"
	servicePort = 443

	leasePrefix = "/registry/masterleases/"
	leaseTTL    = 15 * time.Second
	period      = 10 * time.Second
	leaveTime   = 2 * time.Second
)

// Run maintains the Service, its endpoints and the identity Lease until ctx ends.
// Then it deletes the lease of this server's address, so that the other servers
// remove the address from the endpoints.
func Run(ctx context.Context, c Config) error {
	log := klog.FromContext(ctx)
	who := &identity{client: c.Client, host: c.Hostname, holder: LeaseName(c.Hostname) + "_" + string(uuid.NewUUID())}
	supervise.Repeat(ctx, period, func() {
		if err := reconcile(ctx, c); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot bring the Service of the API servers up to date; trying again", "service", namespace+"/"+name)
		}
		if err := who.renew(ctx, time.Now()); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			log.Error(err, "Cannot renew this API server's identity; trying again")
		}
	})
	leave(context.WithoutCancel(ctx), c)
	return nil
}

func reconcile(ctx context.Context, c Config) error {
	if c.WithoutEndpoints {
		return ensureService(ctx, c)
	}
	if err := renewLease(ctx, c); err != nil {
		return fmt.Errorf("renew the lease of %s: %w", c.Address, err)
	}
	if err := ensureService(ctx, c); err != nil {
		return err
	}
	addresses, err := liveAddresses(ctx, c.Store)
	if err != nil {
		return err
	}
	if len(addresses) == 0 { // this server's own is missing
		return errors.New("no API server IP addresses were listed in storage, refusing to erase all endpoints for the Kubernetes Service")
	}
	addresses = ofOneFamily(addresses, c)
	return errors.Join(ensureEndpoints(ctx, c, addresses), ensureSlice(ctx, c, addresses), deleteOtherSlices(ctx, c))
}

// ofOneFamily returns the addresses of the Service's family or, if there are none, all. A
// slice has one family, and all servers write the same.
func ofOneFamily(addresses []string, c Config) []string {
	found := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return isIPv6(a) != c.ServiceAddress.Is6() })
	if len(found) > 0 {
		return found
	}
	return addresses
}

func isIPv6(address string) bool { return strings.Contains(address, ":") }

// leave deletes this server's lease, so that others remove it from the endpoints.
func leave(ctx context.Context, c Config) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	kv, err := c.Store.Get(ctx, leaseKey(c.Address))
	if err != nil {
		return
	}
	if _, err := c.Store.Delete(ctx, kv.Key, kv.Revision); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot delete the lease; it expires by itself", "key", kv.Key, "err", err.Error())
	}
}

func leaseKey(a netip.Addr) string { return leasePrefix + a.String() }

// renewLease renews this server's lease, in the form in which upstream stores it.
func renewLease(ctx context.Context, c Config) error {
	lease := &corev1.Endpoints{ //nolint:staticcheck // the form in which upstream stores leases
		TypeMeta: metav1.TypeMeta{Kind: "Endpoints", APIVersion: "v1"},
		Subsets:  []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: c.Address.String()}}}}, //nolint:staticcheck // as above
	}
	return store.Change(ctx, c.Store, leaseKey(c.Address), leaseTTL, func(current store.KeyValue) ([]byte, error) {
		lease.Generation = current.Revision
		return resource.EncodeProtobuf(lease, lease.GroupVersionKind())
	})
}

// liveAddresses lists the API servers whose leases have not expired, sorted.
func liveAddresses(ctx context.Context, s store.Store) ([]string, error) {
	page, err := s.List(ctx, leasePrefix, store.ListOptions{})
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, kv := range page.Items {
		addresses = append(addresses, strings.TrimPrefix(kv.Key, leasePrefix))
	}
	slices.Sort(addresses)
	return addresses, nil
}

func ensureService(ctx context.Context, c Config) error {
	services := c.Client.CoreV1().Services(namespace)
	_, err := services.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: c.ServiceAddress.String(), SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: portName, Port: servicePort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(c.Port)}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func ensureEndpoints(ctx context.Context, c Config, addresses []string) error {
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: portName, Port: c.Port, Protocol: corev1.ProtocolTCP}}} //nolint:staticcheck // pods of old clients read it
	for _, a := range addresses {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a}) //nolint:staticcheck // as above
	}
	wanted := []corev1.EndpointSubset{subset} //nolint:staticcheck // as above
	client := c.Client.CoreV1().Endpoints(namespace)
	current, err := client.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, &corev1.Endpoints{ //nolint:staticcheck // as above
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
			Subsets:    wanted,
		}, metav1.CreateOptions{})
		return status.IgnoreRace(err)
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(current.Subsets, wanted) && current.Labels[discoveryv1.LabelSkipMirror] == "true":
		return nil
	}
	next := current.DeepCopy()
	next.Subsets = wanted
	metav1.SetMetaDataLabel(&next.ObjectMeta, discoveryv1.LabelSkipMirror, "true")
	_, err = client.Update(ctx, next, metav1.UpdateOptions{})
	return status.IgnoreRace(err)
}

func ensureSlice(ctx context.Context, c Config, addresses []string) error {
	wanted := newSlice(c, addresses)
	client := c.Client.DiscoveryV1().EndpointSlices(namespace)
	current, err := client.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		return status.IgnoreRace(err)
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(current.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(current.Ports, wanted.Ports) &&
		current.Labels[discoveryv1.LabelServiceName] == name:
		return nil
	case current.AddressType != wanted.AddressType:
		return client.Delete(ctx, name, metav1.DeleteOptions{})
	}
	next := current.DeepCopy()
	next.Endpoints, next.Ports = wanted.Endpoints, wanted.Ports
	metav1.SetMetaDataLabel(&next.ObjectMeta, discoveryv1.LabelServiceName, name)
	_, err = client.Update(ctx, next, metav1.UpdateOptions{})
	return status.IgnoreRace(err)
}

// deleteOtherSlices deletes slices of the Service that no server maintains, such as those
// of an earlier configuration: their addresses may be nobody's.
func deleteOtherSlices(ctx context.Context, c Config) error {
	client := c.Client.DiscoveryV1().EndpointSlices(namespace)
	all, err := client.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return err
	}
	var failed error
	for i := range all.Items {
		if other := all.Items[i].Name; other != name {
			failed = errors.Join(failed, status.IgnoreRace(client.Delete(ctx, other, metav1.DeleteOptions{})))
		}
	}
	return failed
}

func newSlice(c Config, addresses []string) *discoveryv1.EndpointSlice {
	ready, port, protocol, portName := true, c.Port, corev1.ProtocolTCP, portName
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	if isIPv6(addresses[0]) {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return s
}
