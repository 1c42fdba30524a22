package ingress

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-io/coracle/internal/client"
)

// reduce returns what the controller uses of an object, which is all that it keeps of
// the objects of the cluster. It returns other objects as they are.
func reduce(obj any) (any, error) {
	switch o := obj.(type) {
	case *networkingv1.Ingress:
		meta := client.Identity(o)
		meta.CreationTimestamp, meta.DeletionTimestamp = o.CreationTimestamp, o.DeletionTimestamp
		for _, name := range []string{classAnnotation, RedirectAnnotation, MaxBodyAnnotation, TimeoutAnnotation} {
			if value, ok := o.Annotations[name]; ok {
				if meta.Annotations == nil {
					meta.Annotations = map[string]string{}
				}
				meta.Annotations[name] = value
			}
		}
		return &networkingv1.Ingress{ObjectMeta: meta, Spec: reducedSpec(o.Spec), Status: o.Status}, nil
	case *v1.Service:
		out := &v1.Service{ObjectMeta: client.Identity(o), Spec: v1.ServiceSpec{Type: o.Spec.Type}}
		for i := range o.Spec.Ports {
			p := &o.Spec.Ports[i]
			out.Spec.Ports = append(out.Spec.Ports, v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
		}
		return out, nil
	case *discoveryv1.EndpointSlice:
		out := &discoveryv1.EndpointSlice{ObjectMeta: client.Identity(o), AddressType: o.AddressType, Ports: o.Ports}
		if name, ok := o.Labels[discoveryv1.LabelServiceName]; ok {
			out.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		}
		pod := &v1.ObjectReference{Kind: "Pod"} // all share it
		out.Endpoints = make([]discoveryv1.Endpoint, len(o.Endpoints))
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			out.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions}
			if refersToPod(e) {
				out.Endpoints[i].TargetRef = pod
			}
		}
		return out, nil
	case *v1.Pod:
		return &v1.Pod{ObjectMeta: client.Identity(o), Status: v1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs}}, nil
	case *v1.Secret:
		out := &v1.Secret{ObjectMeta: client.Identity(o), Type: o.Type}
		out.Data = map[string][]byte{v1.TLSCertKey: o.Data[v1.TLSCertKey], v1.TLSPrivateKeyKey: o.Data[v1.TLSPrivateKeyKey]}
		if isTooLarge(o) { // more is not used
			out.Data = map[string][]byte{v1.TLSPrivateKeyKey: make([]byte, maxKey+1)}
		}
		return out, nil
	case *unstructured.Unstructured:
		reduceDefinition(o)
		return o, nil
	case *v1.Namespace:
		return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels}}, nil
	case *v1.Node:
		return &v1.Node{ObjectMeta: client.Identity(o), Status: v1.NodeStatus{Addresses: o.Status.Addresses}}, nil
	}
	return obj, nil
}

// reducedSpec returns the specification of an Ingress without rules, paths and certificates
// beyond the bounds of a namespace, of which an object has room for hundreds of thousands.
// What exceeds a bound by one stays, so that it is told of.
func reducedSpec(s networkingv1.IngressSpec) networkingv1.IngressSpec {
	s.Rules = slices.Clone(s.Rules[:min(len(s.Rules), maxHostsOfNamespace+1)])
	paths := maxPathsOfNamespace + 1
	for i := range s.Rules {
		http := s.Rules[i].HTTP
		if http == nil {
			continue
		}
		if len(http.Paths) > paths {
			http = &networkingv1.HTTPIngressRuleValue{Paths: slices.Clone(http.Paths[:paths])}
			s.Rules[i].HTTP = http
		}
		paths -= len(http.Paths)
	}
	s.TLS = slices.Clone(s.TLS[:min(len(s.TLS), maxHostsOfNamespace+1)])
	hosts := maxHostsOfNamespace + 1
	for i := range s.TLS {
		t := &s.TLS[i]
		if len(t.Hosts) > hosts {
			t.Hosts = slices.Clone(t.Hosts[:hosts])
		}
		hosts -= len(t.Hosts)
	}
	return s
}
