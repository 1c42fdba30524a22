package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// Services is the resource services. The API server adds what it allocates:
// cluster IPs, node ports and, following from the IPs, the families (see
// AssignServiceFamilies).
func Services() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Service, *corev1.Service]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "Service",
			Plural:     "services",
			ShortNames: []string{"svc"},
			Categories: []string{"all"},
		},
		Storage: resource.Storage{Path: "services/specs"},
		Default: defaultService,
		Status: resource.Status[*corev1.Service]{
			Copy:     func(s, from *corev1.Service) { s.Status = from.Status },
			Validate: validateServiceStatus,
			Warnings: serviceStatusWarnings,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.Service]{
			PrepareForCreate:    prepareService,
			PrepareForUpdate:    prepareServiceUpdate,
			Validate:            validateService,
			ValidateUpdate:      validateServiceUpdate,
			ValidateName:        validation.NameIsDNSLabel,
			AllowCreateOnUpdate: true,
			Warnings:            serviceWarnings,
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.Service]{ReturnDeletedObject: true},
		Table: resource.Table[*corev1.Service]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Type", "string", corev1.ServiceSpec{}.SwaggerDoc()["type"]),
				resource.Column("Cluster-IP", "string", corev1.ServiceSpec{}.SwaggerDoc()["clusterIP"]),
				resource.Column("External-IP", "string", corev1.ServiceSpec{}.SwaggerDoc()["externalIPs"]),
				resource.Column("Port(s)", "string", corev1.ServiceSpec{}.SwaggerDoc()["ports"]),
				resource.AgeColumn(),
				resource.WideColumn("Selector", "string", corev1.ServiceSpec{}.SwaggerDoc()["selector"]),
			},
			Row: serviceRow,
		},
		FieldSelectors: resource.FieldSelectors[*corev1.Service]{
			SelectableFields: func(s *corev1.Service) fields.Set {
				return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
			},
			Fields: []string{"spec.clusterIP", "spec.type"},
		},
		Subresources: []resource.SubresourceDefinition[corev1.Service, *corev1.Service]{{
			Name:   "proxy",
			Kind:   corev1.SchemeGroupVersion.WithKind("ServiceProxyOptions"),
			Verbs:  []string{"create", "delete", "get", "patch", "update"},
			Action: resource.Proxy,
		}},
	})
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	defaults.Zero(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if spec.SessionAffinityConfig == nil || spec.SessionAffinityConfig.ClientIP == nil ||
			spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil {
			timeout := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout},
			}
		}
	}
	defaults.Zero(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		defaults.Zero(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(spec) {
		defaults.Zero(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if hasClusterIPType(spec) {
		defaults.Nil(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		defaults.Nil(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				defaults.Nil(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// hasClusterIPType reports whether services of that type get cluster IPs.
func hasClusterIPType(spec *corev1.ServiceSpec) bool {
	switch spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// externallyAccessible reports whether a service can be reached from outside
// the cluster.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return usesNodePorts(spec.Type) || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

func usesNodePorts(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer
}

func serviceRow(s *corev1.Service, now time.Time) []any {
	clusterIP := printers.None
	if len(s.Spec.ClusterIPs) > 0 {
		clusterIP = s.Spec.ClusterIPs[0]
	} else if s.Spec.ClusterIP != "" {
		clusterIP = s.Spec.ClusterIP
	}
	return []any{
		s.Name, string(s.Spec.Type), clusterIP, serviceExternalIP(s), servicePorts(s.Spec.Ports),
		resource.Age(s.CreationTimestamp, now), labels.FormatLabels(s.Spec.Selector),
	}
}

func serviceExternalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return cmp.Or(strings.Join(s.Spec.ExternalIPs, ","), printers.None)
	case corev1.ServiceTypeLoadBalancer:
		var addresses []string
		seen := map[string]bool{}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			address := ingress.IP
			if address == "" {
				address = ingress.Hostname
			}
			if address != "" && !seen[address] {
				seen[address] = true
				addresses = append(addresses, address)
			}
		}
		slices.Sort(addresses)
		addresses = append(addresses, s.Spec.ExternalIPs...)
		if len(addresses) == 0 {
			return "<pending>"
		}
		return strings.Join(addresses, ",")
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	}
	return "<unknown>"
}

func servicePorts(ports []corev1.ServicePort) string {
	shown := make([]string, len(ports))
	for i, port := range ports {
		shown[i] = fmt.Sprintf("%d/%s", port.Port, port.Protocol)
		if port.NodePort > 0 {
			shown[i] = fmt.Sprintf("%d:%d/%s", port.Port, port.NodePort, port.Protocol)
		}
	}
	return cmp.Or(strings.Join(shown, ","), printers.None)
}
