package networking

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// NetworkPolicies is the resource networkpolicies.
func NetworkPolicies() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Kind:         "NetworkPolicy",
		Plural:       "networkpolicies",
		ShortNames:   []string{"netpol"},
		Default:      defaultNetworkPolicy,
		Spec:         func(p *networkingv1.NetworkPolicy) any { return p.Spec },
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Pod-Selector", "string", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]),
			resource.AgeColumn(),
		},
		Row: func(p *networkingv1.NetworkPolicy, now time.Time) []any {
			return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), resource.Age(p.CreationTimestamp, now)}
		},
	})
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		fill.Nil(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}
